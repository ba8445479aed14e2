"""Read Python tracebacks from what a rank printed or the worker side copied.

Knows chains ("During handling of …"), torch's `[rank3]: ` prefix on every line, and syntax errors without a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from distdbg.evidence.frames import is_user, package_of

HEADER = "Traceback (most recent call last):"
_DIRECT = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"
#: torch/_utils.py, ExceptionWrapper
_ORIGINAL = "Original Traceback (most recent call last):"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_FRAME = re.compile(r'^ {2}File "(.+)", line (\d+)(?:, in (.+))?$')
_LAST_LINE = re.compile(r"^([A-Za-z_][\w.]*(?:\.<locals>\.[\w.]+)?)(?:: (.*)|:?)$")
_SYNTAX = re.compile(r"^(?:\w+\.)*(SyntaxError|IndentationError|TabError): (.*)$")
#: What other writers print after a traceback: it does not belong to the message.
_FOREIGN = re.compile(
    r"^(\[rank\d+\]:\[|[WEIF]\d{4} \d\d:|terminate called|Exception ignored|Fatal Python error|Current thread 0x|"
    r"={20,}$|-{20,}$|Root Cause \(first observed failure\)|\d{4}-\d\d-\d\d[ T]\d\d:|\S+Warning: |\S+\.py:\d+: )"
)
_MOST_MESSAGE_LINES = 80


@dataclass(frozen=True)
class TracebackFrame:
    file: str
    line: int
    function: str
    #: the source line that Python printed; empty where it had none
    source: str = ""

    @property
    def is_library(self) -> bool:
        return not is_user(self.file)

    @property
    def is_ours(self) -> bool:
        """Whether the frame is one of distdbg's worker side, which calls every script."""
        return "/distdbg/worker/" in self.file

    def __str__(self) -> str:
        name = self.file.rsplit("/", 1)[-1]
        return f"{name}:{self.line} in {self.function}" if self.function else f"{name}:{self.line}"


@dataclass(frozen=True)
class ParsedException:
    """One exception of a traceback. `line` is the 0-based line of its first line within the text it was read from."""

    type: str
    message: str
    frames: tuple[TracebackFrame, ...]
    text: str
    line: int
    #: how it came out of the one before it in a chain: "cause", "context" or "" for the first
    link: str = ""

    @property
    def where(self) -> TracebackFrame | None:
        """The innermost frame of the user's own code; of any code where none is the user's."""
        own = [f for f in self.frames if not f.is_library]
        return next(reversed(own or self.frames), None)

    @property
    def first_line(self) -> str:
        return self.message.split("\n", 1)[0].strip()


def last_chain(text: str) -> tuple[ParsedException, ...]:
    """The last traceback in `text` with the chain that it ends, oldest first; empty where there is none."""
    return next(_chains_backwards(text), ())


def original(error: ParsedException) -> tuple[ParsedException, ...]:
    """The chain that a worker process or a thread of torch has raised, from the message of the exception that passes it
    on (`Caught KeyError in DataLoader worker process 0.`); empty for other exceptions."""
    _, found, rest = error.message.partition(_ORIGINAL)
    return last_chain(HEADER + rest) if found else ()


def chains(text: str, most: int = 200) -> list[tuple[ParsedException, ...]]:
    """Every traceback in `text`, each with its chain, in the order of the text; of more than `most` the last ones."""
    return list(islice(_chains_backwards(text), most))[::-1]


def _chains_backwards(text: str) -> Iterator[tuple[ParsedException, ...]]:
    if HEADER not in text and "Error: " not in text:
        return
    raw = text.split("\n")
    lines = [_RANK_PREFIX.sub("", line) for line in raw]
    heads = [i for i, line in enumerate(lines) if line.strip() == HEADER]
    if not heads:
        if headless := _headless_syntax_error(lines):
            yield headless
        return
    chain: list[ParsedException] = []
    follower = len(lines)
    for head in reversed(heads):
        block = _block(lines, raw, head, follower)
        if block is None:
            if chain:
                yield tuple(reversed(chain))
                chain = []
            continue
        if chain:
            between = [line.strip() for line in lines[head:follower]]
            link = "cause" if _DIRECT in between else "context" if _DURING in between else ""
            if link:
                chain[-1] = replace(chain[-1], link=link)
            else:
                yield tuple(reversed(chain))
                chain = []
        chain.append(block)
        follower = head
    if chain:
        yield tuple(reversed(chain))


def _block(lines: list[str], raw: list[str], head: int, end: int) -> ParsedException | None:
    frames: list[TracebackFrame] = []
    at = head + 1
    while at < end and (lines[at].startswith("  ") or not lines[at].strip()):
        if frame := _FRAME.match(lines[at]):
            source = lines[at + 1].strip() if at + 1 < end and lines[at + 1].startswith("    ") else ""
            frames.append(TracebackFrame(frame[1], _small(frame[2]), frame[3] or "", source))
        at += 1
    if at >= end or not (last := _LAST_LINE.match(lines[at])):
        return None
    stop = at + 1
    prefixed = raw[at] != lines[at]
    while stop < min(end, at + _MOST_MESSAGE_LINES) and not _ends_message(lines, raw, stop, prefixed):
        stop += 1
    message = "\n".join([last[2] or "", *lines[at + 1 : stop]]).rstrip()
    return ParsedException(last[1], message, tuple(frames), "\n".join(lines[head:stop]).rstrip(), head)


def _ends_message(lines: list[str], raw: list[str], at: int, prefixed: bool) -> bool:
    if lines[at].strip() in (HEADER, _DIRECT, _DURING) or _FOREIGN.match(raw[at]):
        return True
    if prefixed:  # torch marks every line of its own traceback: the message ends where the marks end
        return raw[at] == lines[at]
    return not lines[at].strip() and (at + 1 >= len(lines) or not lines[at + 1].startswith((" ", "\t")))


def _headless_syntax_error(lines: list[str]) -> tuple[ParsedException, ...]:
    """Python prints a script's own syntax error without the header."""
    for at in range(len(lines) - 1, -1, -1):
        if not (last := _SYNTAX.match(lines[at])):
            continue
        for first in range(at - 1, max(-1, at - 6), -1):
            if frame := _FRAME.match(lines[first]):
                source = lines[first + 1].strip() if first + 1 < at else ""
                frames = (TracebackFrame(frame[1], _small(frame[2]), "", source),)
                return (ParsedException(last[1], last[2], frames, "\n".join(lines[first : at + 1]), first),)
    return ()


def chain_text(chain: tuple[ParsedException, ...]) -> str:
    """The tracebacks as Python prints them, with its sentences between them."""
    between = {"cause": f"\n\n{_DIRECT}\n\n", "context": f"\n\n{_DURING}\n\n"}
    return "".join((between.get(e.link, "\n\n") if i else "") + e.text for i, e in enumerate(chain)).strip("\n")


def _small(digits: str) -> int:
    """A line number; hostile output may print one with a million digits."""
    return int(digits[:9])


def shortened(text: str, lines: int = 40) -> str:
    """A traceback for a reader: frames of libraries and its middle are left out and counted.

    Lines stay whole: a report masks secrets before it cuts them.
    """
    rows = list(_folded(text.split("\n")))
    if len(rows) <= lines:
        return "\n".join(rows)
    head, tail = 6, lines - 7
    return "\n".join([*rows[:head], f"  … {len(rows) - head - tail} lines left out …", *rows[-tail:]])


def _folded(rows: list[str]) -> Iterator[str]:
    """Library frames in a row as one line; the innermost frame of a traceback is kept, whosever it is."""
    run: list[list[str]] = []
    at = 0
    while at < len(rows):
        frame = _FRAME.match(rows[at])
        end = at + 1
        while frame and end < len(rows) and rows[end].startswith("    "):
            end += 1
        part, at = rows[at:end], end
        if frame and not is_user(frame[1]):
            run.append(part)
            continue
        yield from _as_one_line(run, innermost=frame is None)
        yield from part
        run = []
    yield from _as_one_line(run, innermost=True)


def _as_one_line(run: list[list[str]], *, innermost: bool) -> Iterator[str]:
    kept = run[-1:] if innermost else []
    folded = run[: len(run) - len(kept)]
    if len(folded) > 1:
        packages = {package_of(file[1]) for part in folded if (file := _FRAME.match(part[0]))}
        yield f"  … {len(folded)} frames of {packages.pop() if len(packages) == 1 else 'libraries'} …"
    else:
        kept = run
    yield from (row for part in kept for row in part)
