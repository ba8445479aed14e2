"""Parse the names of Python frames in a trace: which are the user's, and their places.

`with_stack=True` gives frames as `train.py(33): main`. The number is the line that a function begins at; only for
frames that were open when the profiler began, it is where they stood.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_FRAME = re.compile(r"^(.+)\((\d+)\): (.+)$")
_BUILTIN = re.compile(r"^<built-in (?:method|function) (\w+)")


class TracePlace(NamedTuple):
    """A function of the user's that called something; `callee` is the called name, "" if not known.

    `line` is where the function begins, or where it was when the profiler began; `at` the line of the call, 0 if not
    known.
    """

    file: str
    line: int
    function: str
    callee: str = ""
    at: int = 0


@lru_cache(maxsize=8192)
def frame_of(name: str) -> TracePlace | None:
    """`train.py(33): main` as a place; None for a function of C or a module's name."""
    found = None if name.startswith(("<built-in", "nn.Module")) else _FRAME.match(name)
    return TracePlace(found[1], int(found[2]), found[3]) if found else None


def called(name: str) -> str:
    if found := _BUILTIN.match(name):
        return found[1]
    frame = frame_of(name)
    return frame.function if frame else ""
