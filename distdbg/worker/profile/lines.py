"""Which line of the script called what: the profiler knows it of each call, and writes a function's first line only.

So the lines are read from its tree of events, and put beside the trace as events of their own.
"""

from __future__ import annotations

import time

from distdbg.evidence.profile_names import CATEGORY, LINE, LINES_TRACK, LINES_TRACK_NAME
from distdbg.worker.exceptions import belongs_to_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: The tree is walked in Python, some us an event.
MOST_S = 5.0


class Lines:
    """Where the user's code calls into code that is not the user's. `missing` says why some are not there."""

    def __init__(self, results: Any) -> None:  # noqa: ANN401
        self._results = results
        self._users: dict[str, bool] = {}
        self.missing = ""

    def events(self, pid: int, base_ns: int) -> Iterator[dict[str, object]]:
        """`ts` in us after `base_ns`."""
        named = {"ph": "M", "pid": pid, "tid": LINES_TRACK, "ts": 0}
        yield {**named, "name": "thread_name", "args": {"name": LINES_TRACK_NAME}}
        yield {**named, "name": "thread_sort_index", "args": {"sort_index": -1}}
        until = time.monotonic() + MOST_S
        todo = list(self._results.experimental_event_tree())
        while todo:
            if time.monotonic() > until:
                self.missing = f"lines of the script were read for {MOST_S:g} s, and are not in all of the trace"
                return
            event = todo.pop()
            todo += event.children
            caller = getattr(event.extra_fields, "caller", None)
            if caller is None or not self._is_users(caller.file_name):
                continue
            called = getattr(event.extra_fields, "callsite", None)
            if called is not None and self._is_users(called.file_name):
                continue
            begun, ended = event.start_time_ns, event.end_time_ns
            yield {
                "ph": "X", "cat": CATEGORY, "name": LINE, "pid": pid, "tid": LINES_TRACK,
                "ts": (begun - base_ns) / 1000, "dur": max(ended - begun, 0) / 1000,
                "args": {"file": caller.file_name, "line": caller.line_number, "thread": event.start_tid},
            }  # fmt: skip

    def _is_users(self, file: str) -> bool:
        known = self._users.get(file)
        if known is None:
            known = self._users[file] = belongs_to_user(file)
        return known
