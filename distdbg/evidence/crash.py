"""What a process says when native code ends it: faulthandler's stack, C++'s last words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdbg.evidence.traceback_text import Frame

_FATAL = re.compile(r"^(?:\[rank\d+\]: ?)?Fatal Python error: (.+)$", re.MULTILINE)
_STACK = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$", re.MULTILINE)
_FRAME = re.compile(r'^ {2}File "(.+)", line (\d{1,9}) in (.+)$')
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
    frames: tuple[Frame, ...] = ()

    @property
    def where(self) -> Frame | None:
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
    rest = text[match.start() :].split("\n")[:200]
    current = next((i for i, line in enumerate(rest) if line.startswith("Current thread")), None)
    start = current if current is not None else next((i for i, line in enumerate(rest) if _STACK.match(line)), 0)
    frames: list[Frame] = []
    end = start + 1
    for end in range(start + 1, len(rest)):
        frame = _FRAME.match(rest[end])
        if frame is None:
            break
        frames.append(Frame(frame[1], int(frame[2]), frame[3]))
    stack = [line for line in rest[start:end] if not ((m := _FRAME.match(line)) and Frame(m[1], 0, "").is_ours)]
    shown = [rest[0], *stack] if start else rest[:1]
    return Crash(match[1].strip(), "\n".join(shown), text.count("\n", 0, match.start()), tuple(frames))


def terminate(text: str) -> tuple[str, str, int] | None:
    """(C++ type or "", what() or "without an active exception", 0-based line) of the last std::terminate."""
    found = list(_TERMINATE.finditer(text))
    if not found:
        return None
    match = found[-1]
    line = text.count("\n", 0, match.start())
    return (match["type"] or "", (match["what"] or match["bare"] or "").strip(), line)
