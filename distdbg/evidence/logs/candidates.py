"""Find the few lines of a long log that can matter, in large blocks of bytes, and keep them with their surroundings.

Most lines of a training log are steps. A block is searched for short pieces of words (`NEEDLES`), one of which every
known message has; only the lines around a hit are decoded and parsed. So a log is read in one pass, at some 100 MB/s,
and what is kept of it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Pieces that messages of failure contain. Without the first letter of a word: it may be upper or lower case.
NEEDLES: tuple[bytes, ...] = (
    b"rror", b"RROR", b"xception", b"raceback", b"ailed", b"ailure", b"atal ", b"illed", b"imed out", b"imeout",
    b"xitcode", b"xited", b"xit code", b"ignal", b"Xid (", b"NCCL WARN", b"ANCELLED", b"reempt", b"oom", b"borted",
    b"refused", b"join collective", b" nranks ", b"call first", b"otReady", b"egmentation", b" is lost",
    b"No such file", b"marked dead", b"subset of ranks", b"orruption", b"access fault", b"DUE TO", b"Evicted",
    b"low on resource", b"TERM_", b"nterrupt", b"type=timeout", b"xceed", b"deleted at request",
    b" nan", b"=nan", b":nan", b" NaN", b"=NaN", b":NaN",
)  # fmt: skip
#: Blocks are searched without what is no letter: half of a log of numbers, in half of the time.
_NO_LETTERS = bytes(code for code in range(256) if not (code < 128 and chr(code).isalpha()))
_LETTERS = tuple(dict.fromkeys(needle.translate(None, _NO_LETTERS) for needle in NEEDLES))
_HIT = re.compile(b"|".join(re.escape(needle) for needle in NEEDLES))
#: A progress line or a step of training: the job lived when it was printed.
_PROGRESS = re.compile(
    rb"(?i)\b(?:step|iter(?:ation)?|epoch|global_step|batch)\b[ =:\[\]'\"/]*\d+|\bloss\b['\"]?[ =:]+[\d.]"
    rb"|\d%\||it/s|s/it|samples/s|tokens/s"
)
#: Lines before a hit that are kept, and after it: a traceback is above its last line, a table below its title.
_BEFORE, _AFTER = 60, 40
#: The beginning and the end of a file are always kept.
HEAD, TAIL = 100, 300
#: Of one log; beyond it the first and the last are kept.
_MOST_LINES, _MOST_BYTES = 40_000, 48 << 20
#: Hits that differ in numbers only are one message; of each, so many are kept with their surroundings, and so many
#: with the line alone: a warning of each step must not use up the room of the failure that comes later.
_WHOLE, _ALONE = 40, 2_000
#: When half of the room is used, only messages that are new are kept with their surroundings.
_NEW = 2
_DIGITS = re.compile(rb"0x[0-9a-fA-F]+|\d+")
_CARRY = 64 << 10
LONGEST_LINE = 16 << 10


def _may_hit(block: bytes) -> bool:
    letters = block.translate(None, _NO_LETTERS)
    return any(needle in letters for needle in _LETTERS)


@dataclass(frozen=True)
class RawLine:
    """One kept line; `number` is 1-based in its file."""

    number: int
    text: str


@dataclass
class Candidates:
    """Feed it a file's blocks, each of whole lines, in order; then `kept` has the lines that can matter.

    `dropped` counts hits whose windows were not kept, `cut_lines` counts kept lines that
    were longer than LONGEST_LINE.
    """

    lines: int = 0
    size: int = 0
    dropped: int = 0
    cut_lines: int = 0
    _kept: dict[int, bytes] = field(default_factory=dict)
    _seen: dict[bytes, int] = field(default_factory=dict)
    _carry: list[bytes] = field(default_factory=list)
    _open_until: int = HEAD
    _kept_bytes: int = 0

    def feed(self, block: bytes) -> None:
        """`block` ends with a newline, but for the last one of the file."""
        self.size += len(block)
        count = block.count(b"\n") + (not block.endswith(b"\n") and bool(block))
        if self._open_until > self.lines or _may_hit(block):
            self._search(block, count)
        rows = block[-_CARRY:].split(b"\n")
        if rows and not rows[-1]:
            rows.pop()
        self._carry = [*self._carry, *rows][-max(TAIL, _BEFORE) :] if len(rows) < TAIL else rows[-TAIL:]
        self.lines += count

    def _search(self, block: bytes, count: int) -> None:
        rows: list[bytes] | None = None
        if self._open_until > self.lines:  # the rest of a window that the block before began
            rows = block.split(b"\n")[:count]
            for at in range(min(count, self._open_until - self.lines)):
                self._keep(self.lines + at + 1, rows[at])
        begin, row = 0, 0
        for hit in _HIT.finditer(block):
            if hit.start() < begin:
                continue  # another hit of a line that was seen
            row += block.count(b"\n", begin, hit.start())
            end = block.find(b"\n", hit.end())
            begin_of_line = block.rfind(b"\n", 0, hit.start()) + 1
            line = block[begin_of_line : end if end >= 0 else len(block)]
            begin, here = (end if end >= 0 else len(block)), row
            around = self._wanted_around(line)
            if around is not None:
                rows = rows if rows is not None else block.split(b"\n")[:count]
                self._window(rows, here, *around)

    def _wanted_around(self, line: bytes) -> tuple[int, int] | None:
        """How many lines before and after it are kept; None where it is not kept itself."""
        key = _DIGITS.sub(b"#", line[:240])
        seen = self._seen.get(key, 0)
        if len(self._seen) < 20_000 or seen:
            self._seen[key] = seen + 1
        full = max(len(self._kept) / _MOST_LINES, self._kept_bytes / _MOST_BYTES)
        if seen >= _ALONE or full >= 1:
            self.dropped += 1
            return None
        return (_BEFORE, _AFTER) if seen < (_WHOLE if full < 0.5 else _NEW) else (0, 0)

    def _window(self, rows: list[bytes], here: int, before: int, after: int) -> None:
        number = self.lines + here + 1
        first = max(1, number - before)
        for at in range(first, number + 1):
            row = at - self.lines - 1
            if row >= 0:
                self._keep(at, rows[row])
            elif -row <= len(self._carry):
                self._keep(at, self._carry[row])
        until = number + after
        for at in range(number + 1, min(until, self.lines + len(rows)) + 1):
            self._keep(at, rows[at - self.lines - 1])
        self._open_until = max(self._open_until, until)

    def _keep(self, number: int, line: bytes) -> None:
        if number not in self._kept:
            self.cut_lines += len(line) > LONGEST_LINE
            self._kept[number] = line[:LONGEST_LINE]
            self._kept_bytes += len(self._kept[number])

    def kept(self) -> Iterator[RawLine]:
        """In order, with the file's end."""
        first = self.lines - len(self._carry) + 1
        for at, line in enumerate(self._carry):
            self._keep(first + at, line)
        for number in sorted(self._kept):
            if number <= self.lines:
                yield RawLine(number, self._kept[number].decode("utf-8", "replace").rstrip("\r"))


def is_progress(text: str) -> bool:
    return _PROGRESS.search(text[:400].encode("utf-8", "replace")) is not None
