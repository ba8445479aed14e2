"""When which bytes of a log arrived, and a log as lines that have a time.

An index is text, one line an arrival: `<epoch ns> <offset> <length>`, in the order of both. Bytes without an entry of
their own arrived with, or at most 20 ms after, those of the entry before them. Offsets and lengths are in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: A line that is longer is handed on in pieces, so that no line can take the reader's memory.
LONGEST_LINE = 32 << 10
_MOST = 1 << 63
#: Split at once: bounds the list of lines, which may all be empty.
_SPLIT_BYTES = 8 << 10


class Span(NamedTuple):
    t_ns: int
    offset: int
    length: int


class Line(NamedTuple):
    """`t_ns` is when its first byte arrived, 0 where no index says; `ended` is False where no newline followed."""

    t_ns: int
    data: bytes
    ended: bool = True


def _spans(lines: Sequence[bytes]) -> Iterator[Span]:
    """The entries of an index, in order. Other lines are left out."""
    for line in lines:
        fields = line.split()
        if len(fields) != 3 or not all(f.isdigit() and len(f) < 20 for f in fields):
            continue
        t_ns, offset, length = map(int, fields)
        if t_ns < _MOST and offset < _MOST:
            yield Span(t_ns, offset, length)


class TimeTable:
    """Dates a log's bytes, given in their order, while both the log and its index still grow."""

    def __init__(self) -> None:
        self._coming: deque[Span] = deque()
        self._partial = b""
        self._t_ns = 0
        self._last_offset = -1

    @property
    def reaches(self) -> int:
        """The offset of the last entry known, -1 without one: bytes below it can be dated for good."""
        return self._last_offset

    def add(self, text: bytes) -> None:
        """The next part of the index, wherever it was cut."""
        *lines, rest = (self._partial + text).split(b"\n")
        self._partial = rest[:64]  # no entry is longer; damage stays damage
        for span in _spans(lines):
            if span.offset >= self._last_offset:  # anything else is damage
                self._last_offset = span.offset
                self._coming.append(span)

    def cut(self, offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(epoch ns, bytes) for each part of `data`, which stands at `offset`, that arrived at one time."""
        while data:
            while self._coming and self._coming[0].offset <= offset:
                self._t_ns = max(self._t_ns, self._coming.popleft().t_ns)
            count = self._coming[0].offset - offset if self._coming else len(data)
            yield self._t_ns, data[:count]
            data, offset = data[count:], offset + count


class LineSplitter:
    """A stream's bytes into lines. Lines are cut at LONGEST_LINE, never within a UTF-8 character."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._window = min(longest, _SPLIT_BYTES)
        self._partial = bytearray()
        self._t_ns = 0

    def feed(self, t_ns: int, data: bytes) -> Iterator[Line]:
        """The lines that these bytes, all of one time, complete; and pieces of one that is too long."""
        start = 0
        while start < len(data):
            window = min(start + self._window, len(data))
            newline = data.rfind(b"\n", start, window)
            if newline < 0:
                yield from self._grow(t_ns, data[start:window])
                start = window
                continue
            first, *others = data[start:newline].split(b"\n")
            yield from self._grow(t_ns, first)
            yield Line(self._t_ns, bytes(self._partial))
            self._partial.clear()
            for line in others:
                yield Line(t_ns, line)
            start = newline + 1

    def _grow(self, t_ns: int, data: bytes) -> Iterator[Line]:
        if not self._partial:
            self._t_ns = t_ns
        self._partial += data
        while len(self._partial) > self._longest:
            yield self._piece()
            self._t_ns = t_ns

    def _piece(self) -> Line:
        count = whole_characters(self._partial, self._longest)
        piece = Line(self._t_ns, bytes(self._partial[:count]), ended=False)
        del self._partial[:count]
        return piece

    def rest(self) -> Line | None:
        """What has no newline at the end of everything."""
        line = Line(self._t_ns, bytes(self._partial), ended=False) if self._partial else None
        self._partial.clear()
        return line

    @property
    def partial(self) -> bytes:
        """The line that is still being printed, without half a character at its end."""
        return bytes(self._partial[: whole_characters(self._partial, len(self._partial))])


def whole_characters(data: bytes | bytearray, count: int) -> int:
    """The most bytes up to `count` that do not end within a UTF-8 character; bytes that are no UTF-8 count."""
    for back in range(1, min(4, count) + 1):
        byte = data[count - back]
        if byte & 0xC0 != 0x80:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return count - back if back < needs and byte < 0xF8 else count
    return count
