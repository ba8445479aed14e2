"""Add events to a profile: its steps, its phases, and the user's lines that make calls.

They are put in when the trace is written. torch's `record_function` must end where it began, but forward and backward
events occur inside torch's own ranges; and torch's profiler writes a function's first line only.
"""

from __future__ import annotations

import _thread
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from distdbg.evidence.trace import marks
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.user_code import belongs_to_user

_now = time.time_ns
#: event -> the phase that begins with it; the next event ends it
_BEGINS = {
    "data": marks.LOADER, "batch": marks.COMPUTING, "data-end": "", "forward": marks.FORWARD,
    "forward-end": marks.COMPUTING, "backward": marks.BACKWARD, "optimizer": marks.OPTIMIZER, "step": "",
    "save": marks.SAVING, "save-end": "",
}  # fmt: skip


class PhaseMarks:
    """Listens from the start, in the thread that makes it; times are epoch nanoseconds."""

    def __init__(self, bus: Bus) -> None:
        self._thread = _thread.get_ident()
        self._phases: list[tuple[int, str]] = []
        #: number, end, and ns that it was queued
        self._steps: list[tuple[int, int, int]] = []
        self._queued = _queued()
        self._begun = self._ended = _now()
        self._unsubscribe = bus.subscribe_all(*((event, self._subscriber(phase)) for event, phase in _BEGINS.items()))

    def _subscriber(self, phase: str) -> Callable[[object], None]:
        phases, thread, ident = self._phases, self._thread, _thread.get_ident

        def add(_subject: object) -> None:
            if ident() == thread:
                phases.append((_now(), phase))

        return add

    def step_done(self, number: int) -> None:
        before, self._queued = self._queued, _queued()
        self._steps.append((number, _now(), self._queued - before))

    def end(self) -> None:
        self._ended = _now()
        self._unsubscribe()

    def events(self, pid: int, base_ns: int) -> Iterator[dict[str, object]]:
        """Complete events in a separate track: they overlap torch's, and those of a track must nest. `ts` in us."""
        import threading

        yield from _track(pid, marks.TRACK, marks.TRACK_NAME)
        # the kernel's number of the thread, as a trace has it: the main thread's is the process's
        native = next((t.native_id or 0 for t in threading.enumerate() if t.ident == self._thread), 0)
        thread = {"thread": native}
        about = {"ph": "X", "cat": marks.CATEGORY, "pid": pid, "tid": marks.TRACK, "args": thread}
        begun = self._begun
        for number, ended, queued in self._steps:
            more = {"args": {**thread, marks.QUEUED: queued / 1000}}
            yield {**about, "name": marks.step_name(number), **_span(begun, ended, base_ns), **more}
            begun = ended
        for (begun, phase), (ended, _) in zip(self._phases, [*self._phases[1:], (self._ended, "")], strict=True):
            if phase:
                yield {**about, "name": phase, **_span(begun, ended, base_ns)}


def _track(pid: int, track: int, name: str) -> Iterator[dict[str, object]]:
    """A separate track above the others."""
    named = {"ph": "M", "pid": pid, "tid": track, "ts": 0}
    yield {**named, "name": "thread_name", "args": {"name": name}}
    yield {**named, "name": "thread_sort_index", "args": {"sort_index": -1}}


def _span(begun: int, ended: int, base_ns: int) -> dict[str, float]:
    return {"ts": (begun - base_ns) / 1000, "dur": (ended - begun) / 1000}


def _queued() -> int:
    """ns that this thread has been ready and had no processor, as the kernel counts them; 0 where it does not."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


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
        yield from _track(pid, marks.LINES_TRACK, marks.LINES_TRACK_NAME)
        for begun, ended, thread, file, line in self._calls:
            if thread == self._trains:
                yield {
                    "ph": "X", "cat": marks.CATEGORY, "name": marks.LINE, "pid": pid, "tid": marks.LINES_TRACK,
                    **_span(begun, max(begun, ended), base_ns),
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
