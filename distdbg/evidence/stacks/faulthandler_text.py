"""Read the stacks that Python's faulthandler prints into the form of py-spy's JSON, for evidence/stacks/threads.py.

Current thread 0x00007f1146ffd6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f116ce6db80 (most recent call first):
  File "train.py", line 13 in main

torch's worker server answers so to dump_traceback. The newest thread is the first (CPython, Python/traceback.c,
_Py_DumpTracebackThreads).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from distdbg.evidence.stacks.threads import MOST_FRAMES

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
