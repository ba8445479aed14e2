"""Add the user's lines that make calls to a trace: torch's profiler writes a function's first line only.

They are read from the profiler's tree of events, and put into the trace as separate events: where the user's code calls
other code, in the training thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from distdbg.evidence.trace.marks import CATEGORY, LINE, LINES_TRACK, LINES_TRACK_NAME
from distdbg.worker.user_code import belongs_to_user

#: The tree is walked in Python, a few us an event, while the training goes on.
_MOST_S = 5.0
#: This file is on the stack when the profiler begins and ends, which marks the training thread.
_OURS = "distdbg/worker/profile/profiler.py"


def _frames(fields: Any) -> tuple[str, int, str]:
    """The caller's file and line, and the file of the called function; empty for other events.

    A few names are in memory that torch has freed (2.13, where `torch.save` imports a module): those are no text.
    """
    caller, called = getattr(fields, "caller", None), getattr(fields, "callsite", None)
    if caller is None:
        return "", 0, ""
    try:
        return caller.file_name, caller.line_number, called.file_name if called else ""
    except UnicodeDecodeError:
        return "", 0, ""


class Lines:
    """`missing` says why some lines are not there, `count` how many events the trace has."""

    def __init__(self, results: Any) -> None:
        self._files: dict[str, str] = {}
        self.missing = ""
        self.count = 0
        self._calls, self._trains = self._walk(list(results.experimental_event_tree()))

    def events(self, pid: int, base_ns: int) -> Iterator[dict[str, object]]:
        """`ts` in us after `base_ns`."""
        named = {"ph": "M", "pid": pid, "tid": LINES_TRACK, "ts": 0}
        yield {**named, "name": "thread_name", "args": {"name": LINES_TRACK_NAME}}
        yield {**named, "name": "thread_sort_index", "args": {"sort_index": -1}}
        for begun, ended, thread, file, line in self._calls:
            if thread == self._trains:
                yield {
                    "ph": "X", "cat": CATEGORY, "name": LINE, "pid": pid, "tid": LINES_TRACK,
                    "ts": (begun - base_ns) / 1000, "dur": max(ended - begun, 0) / 1000,
                    "args": {"file": file, "line": line},
                }  # fmt: skip

    def _walk(self, todo: list[Any]) -> tuple[list[tuple[int, int, int, str, int]], int | None]:
        """(begin and end in epoch ns, thread, file, line) of each call, and which thread it is that trains."""
        found: list[tuple[int, int, int, str, int]] = []
        trains: int | None = None
        until = time.monotonic() + _MOST_S
        while todo:
            event = todo.pop()
            todo += event.children
            self.count += 1
            if self.missing or time.monotonic() > until:
                self.missing = f"lines of the script were looked up for {_MOST_S:g} s, and not all were found"
                continue
            name, line, called = _frames(event.extra_fields)
            if name.endswith(_OURS):
                trains = event.start_tid
            file = self._users(name) if name else ""
            if file and not (called and self._users(called)):
                found.append((event.start_time_ns, event.end_time_ns, event.start_tid, file, line))
        return found, trains

    def _users(self, name: str) -> str:
        """The path of a file of the user's, empty for others. torch cuts off the folder that Python found it in."""
        known = self._files.get(name)
        if known is None:
            paths = (os.path.join(folder or os.getcwd(), name) for folder in sys.path)
            path = next((path for path in paths if os.path.exists(path)), "")
            known = self._files[name] = path if path and belongs_to_user(path) else ""
        return known
