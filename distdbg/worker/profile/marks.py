"""Record when steps and phases of a profile began and ended, as events of the trace.

They are added to the profiler's own events when the trace is written. torch's `record_function` must end where it
began, but forward and backward events occur inside torch's own ranges.
"""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable, Iterator

from distdbg.evidence.trace.marks import (
    BACKWARD,
    CATEGORY,
    COMPUTING,
    FORWARD,
    LOADER,
    OPTIMIZER,
    QUEUED,
    SAVING,
    TRACK,
    TRACK_NAME,
    step_name,
)
from distdbg.worker.bus import Bus

_now = time.time_ns
#: event -> the phase that begins with it; the next event ends it
_BEGINS = {
    "data": LOADER, "batch": COMPUTING, "data-end": "", "forward": FORWARD, "forward-end": COMPUTING,
    "backward": BACKWARD, "optimizer": OPTIMIZER, "step": "", "save": SAVING, "save-end": "",
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
        named = {"ph": "M", "pid": pid, "tid": TRACK, "ts": 0}
        yield {**named, "name": "thread_name", "args": {"name": TRACK_NAME}}
        yield {**named, "name": "thread_sort_index", "args": {"sort_index": -1}}
        thread = {"thread": self._native()}
        about = {"ph": "X", "cat": CATEGORY, "pid": pid, "tid": TRACK, "args": thread}
        begun = self._begun
        for number, ended, queued in self._steps:
            more = {"args": {**thread, QUEUED: queued / 1000}}
            yield {**about, "name": step_name(number), **_span(begun, ended, base_ns), **more}
            begun = ended
        for (begun, phase), (ended, _) in zip(self._phases, [*self._phases[1:], (self._ended, "")], strict=True):
            if phase:
                yield {**about, "name": phase, **_span(begun, ended, base_ns)}

    def _native(self) -> int:
        """The kernel's number of the thread, as a trace has it: the main thread's is the process's."""
        import threading

        return next((t.native_id or 0 for t in threading.enumerate() if t.ident == self._thread), 0)


def _span(begun: int, ended: int, base_ns: int) -> dict[str, float]:
    return {"ts": (begun - base_ns) / 1000, "dur": (ended - begun) / 1000}


def _queued() -> int:
    """ns that this thread has been ready and had no processor, as the kernel counts them; 0 where it does not."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
