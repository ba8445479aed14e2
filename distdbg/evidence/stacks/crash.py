"""Read the last output of a process that native code ended: faulthandler's stack, C++'s message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.stacks.threads import MOST_FRAMES
from distdbg.evidence.stacks.tracebacks import TracebackFrame

_FATAL = re.compile(r"^(?:\[rank\d+\]: ?)?(?:Fatal Python error: )+(.+)$", re.MULTILINE)
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


THREAD_LINE = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
FRAME_LINE = re.compile(r'^ {2}File "(.+)", line (\d{1,9}) in (.+)$')
#: Follows the hundredth thread; the older ones, the main thread among them, are left out.
_CUT = "..."
_OTHER_LINES = {"", "  <no Python frame>", "  ...", _CUT}


def is_faulthandler_text(text: str) -> bool:
    """Whether all lines are stacks: a log in which stacks are printed is a log."""
    lines = text.strip("\n").split("\n")
    return bool(THREAD_LINE.match(lines[0])) and all(
        line in _OTHER_LINES or THREAD_LINE.match(line) or FRAME_LINE.match(line) for line in lines
    )


def read_faulthandler_text(lines: Iterable[str], pid: int = 0) -> list[dict[str, Any]]:
    """One object a thread, as py-spy's JSON has them; `pid` is that of the process, 0 if it is not known."""
    threads: list[dict[str, Any]] = []
    cut = False
    for line in lines:
        if THREAD_LINE.match(line):
            threads.append({"pid": pid, "os_thread_id": 0, "thread_name": "", "frames": []})
        elif threads and (frame := FRAME_LINE.match(line)) and len(threads[-1]["frames"]) < MOST_FRAMES:
            threads[-1]["frames"].append({"name": frame[3], "filename": frame[1], "line": int(frame[2])})
        cut = cut or line == _CUT
    if threads and not cut:
        threads[-1] |= {"os_thread_id": pid, "thread_name": "MainThread"}
    return threads
