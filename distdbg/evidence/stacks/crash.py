"""Read the last output of a process that native code ended: faulthandler's stack, C++'s message."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdbg.evidence.stacks.faulthandler_text import FRAME_LINE, THREAD_LINE
from distdbg.evidence.stacks.tracebacks import TracebackFrame

_FATAL = re.compile(r"^(?:\[rank\d+\]: ?)?Fatal Python error: (.+)$", re.MULTILINE)
_MOST_ROWS = 400
_TERMINATE = re.compile(
    r"^terminate called (?:after throwing an instance of '(?P<type>[^'\n]+)'(?:\s*\n\s*what\(\):\s*(?P<what>.*))?"
    r"|(?P<bare>without an active exception))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Crash:
    """`title` is faulthandler's or C++'s own word for it; `line` 0-based within the text; `frames` innermost first."""

    title: str
    text: str
    line: int
    frames: tuple[TracebackFrame, ...] = ()

    @property
    def where(self) -> TracebackFrame | None:
        """The innermost frame of the user's own code; of a library where the crashing thread shows none of his."""
        own = [f for f in self.frames if not f.is_library]
        others = [f for f in self.frames if not f.is_ours]
        return next(iter(own or others), None)


def fatal_error(text: str) -> Crash | None:
    """The last stack that faulthandler printed, of the thread that crashed."""
    found = list(_FATAL.finditer(text))
    if not found:
        return None
    match = found[-1]
    rows = text[match.start() :].split("\n")[:_MOST_ROWS]
    stacks = [_stack(rows, at) for at, row in enumerate(rows) if THREAD_LINE.match(row)]
    # Without a "current" thread, a thread that Python does not know crashed: then the user's own thread says most.
    stack = next((s for s in stacks if s[0].startswith("Current")), None) or next(
        (s for s in reversed(stacks) if any(not f.is_library for f in s[2])), None
    )
    title, line = match[1].strip(), text.count("\n", 0, match.start())
    if stack is None:
        return Crash(title, rows[0], line)
    return Crash(title, "\n".join([rows[0], *stack[1]]), line, stack[2])


def _stack(rows: list[str], at: int) -> tuple[str, list[str], tuple[TracebackFrame, ...]]:
    """(headline, rows without our own frames, frames) of the thread whose stack begins at row `at`."""
    shown, frames = [rows[at]], []
    for row in rows[at + 1 :]:
        match = FRAME_LINE.match(row)
        if match is None:
            break
        frame = TracebackFrame(match[1], int(match[2]), match[3])
        frames.append(frame)
        if not frame.is_ours:
            shown.append(row)
    return rows[at], shown, tuple(frames)


def terminate(text: str) -> tuple[str, str, int] | None:
    """(C++ type or "", what() or "without an active exception", 0-based line) of the last std::terminate."""
    found = list(_TERMINATE.finditer(text))
    if not found:
        return None
    match = found[-1]
    line = text.count("\n", 0, match.start())
    return (match["type"] or "", (match["what"] or match["bare"] or "").strip(), line)
