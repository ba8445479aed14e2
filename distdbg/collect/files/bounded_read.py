"""Read foreign files: at most the requested bytes, never a FIFO or a device, without exceptions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from distdbg.evidence.logs.tail import Tail
from distdbg.rundir import open_regular
from distdbg.wording import counted

#: Newlines before a tail are counted up to here; beyond it a line number is not worth the wait.
_COUNT_UP_TO = 64 << 20
#: Characters of a line that are read; no line of a stack or a log that means anything is longer.
_LONGEST_LINE = 64 << 10
_BLOCK = 1 << 20
#: One character in so many could not be decoded: text in an old encoding has fewer.
MIN_UNDECODED = 4


def read_whole(path: Path | str, most: int) -> tuple[str | None, str]:
    """(text or None, why None or cut). Missing is (None, ""): that is for the caller to judge."""
    data, size, why = _read(path, most, from_end=False)
    if data is None:
        return None, why
    cut = f"longer than {most >> 20} MiB: the rest was not read" if size > most else ""
    return data.decode("utf-8", "replace"), cut


def is_binary(text: str) -> bool:
    """Whether so many bytes could not be decoded that no program printed this as text."""
    return len(text) < MIN_UNDECODED * text.count("\ufffd")


def size_of(path: Path) -> int:
    """In bytes; 0 of what cannot be read, which its reader reports."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_bytes(path: Path | str, most: int) -> tuple[bytes | None, str]:
    """Like read_whole, without decoding."""
    data, _, why = _read(path, most, from_end=False)
    return data, why


def read_end(path: Path, most: int) -> Tail:
    """The last `most` bytes from a line's beginning, decoded with replacement; empty if there is no such file."""
    data, size, why = _read(path, most, from_end=True)
    if data is None or size <= most:
        return Tail((data or b"").decode("utf-8", "replace"), unread=why)
    cut = data.find(b"\n") + 1
    before = size - len(data) + cut
    return Tail(data[cut:].decode("utf-8", "replace"), _lines_before(path, before), before)


def read_spread(path: Path, most: int, count: int) -> str | None:
    """Some `count` whole lines from all over a file of more than `most` bytes; None where it has no more than that."""
    size = _read(path, 0, from_end=False)[1]
    if size <= most:
        return None
    found = []
    try:
        with open_regular(path) as file:
            room = max(4096, 3 * len(file.readline(most)))  # a line somewhere is about as long as the first
            for part in range(count):
                file.seek(part * size // count)
                data = file.read(room)
                begin = 0 if part == 0 else data.find(b"\n") + 1
                end = data.find(b"\n", begin)
                if end > begin:
                    found.append(data[begin:end])
    except OSError:
        return None
    return b"\n".join(dict.fromkeys(found)).decode("utf-8", "replace")


class LineReader:
    """A text file line by line, however long it is: at most `most` bytes of it, of each line its beginning.

    Iterating again begins at the first line. Afterwards `losses` has what was not read.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._path, self._most = path, most
        self._long, self._why = 0, ""

    def __iter__(self) -> Iterator[str]:
        self._long, self._why = 0, ""
        left, line = self._most, bytearray()
        try:
            with open_regular(self._path) as file:
                while block := file.read(min(_BLOCK, left)):
                    left -= len(block)
                    *ended, rest = block.split(b"\n")
                    for part in ended:
                        line += part[: _LONGEST_LINE + 1]
                        yield self._decoded(line)
                        line.clear()
                    line += rest[: max(0, _LONGEST_LINE + 1 - len(line))]
                if not left and file.read(1):
                    self._why = f"it is longer than {self._most >> 20} MiB"
        except OSError as error:
            self._why = error.strerror or "it cannot be read"
        if line:
            yield self._decoded(line)

    def _decoded(self, line: bytearray) -> str:
        self._long += len(line) > _LONGEST_LINE
        return line[:_LONGEST_LINE].decode("utf-8", "replace").removesuffix("\r").removeprefix("\ufeff")

    def losses(self) -> Iterator[tuple[str, str]]:
        """(what of it was not read, why), for the report."""
        if self._long:
            yield (
                f"the end of {counted(self._long, 'line')}",
                f"longer than {_LONGEST_LINE >> 10} KiB",
            )
        if self._why:
            yield "the rest", self._why


def _read(path: Path | str, most: int, *, from_end: bool) -> tuple[bytes | None, int, str]:
    try:
        with open_regular(path, buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - most) if from_end else 0
            # No more than it has: os.pread() allocates all that it is asked for.
            return os.pread(file.fileno(), min(most, size), start), size, ""
    except FileNotFoundError:
        return None, 0, ""
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        return None, 0, getattr(error, "strerror", None) or str(error)


def _lines_before(path: Path, offset: int) -> int:
    """1-based number of the line that begins at `offset`, 0 where it is too far to count."""
    if offset > _COUNT_UP_TO:
        return 0
    lines = 1
    try:
        with open_regular(path) as file:
            while offset > 0 and (block := file.read(min(1 << 20, offset))):
                lines += block.count(b"\n")
                offset -= len(block)
    except OSError:
        return 0
    return lines
