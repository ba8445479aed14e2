"""Turn the events of one rank's trace into events of a trace of all ranks, with unique processes, times and ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.jsonl import inner, number, text
from distdbg.evidence.trace.marks import CATEGORY, LINES_TRACK, TRACK

#: A rank has so many numbers for its processes: itself, its GPUs, what the profiler shows as one.
_PIDS = 1000
_ABOUT_PROCESS = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index"}
#: Kineto's own events belong to none of the rank's processes.
_ABOUT_PROFILER = ("Spans", "Traces", "")
_IDS = ("External id", "correlation")
#: More than any thread's own number: Linux gives at most 2**22.
_ANNOTATIONS = 10_000_000
_OURS = (TRACK, LINES_TRACK)


@dataclass(frozen=True)
class TraceSlot:
    """`index` of `count` traces; `shift_us` is added to each time. `host` may be empty."""

    rank: int
    host: str
    index: int
    count: int
    shift_us: float

    @property
    def title(self) -> str:
        return f"rank {self.rank} on {self.host}" if self.host else f"rank {self.rank}"


class Renumbering:
    """One for a trace. The first process that has events is the rank, any other (a GPU) has its own name.

    A thread's annotations get a track of their own beside it: they begin and end in the midst of the Python functions
    that make them, and of slices that cross each other on one track Perfetto drops one.
    """

    def __init__(self, place: TraceSlot) -> None:
        self._place = place
        self._pids: dict[object, int] = {}
        self._said: dict[object, dict[str, str]] = {}
        self._annotated: set[tuple[int, int]] = set()

    def event(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """`event` itself, changed, and before it what names its process."""
        pid, name = event.get("pid"), text(event, "name")
        if pid in _ABOUT_PROFILER:
            return
        if event.get("ph") == "M" and name in _ABOUT_PROCESS:
            value = inner(event, "args").get(_ABOUT_PROCESS[name])
            self._said.setdefault(_key(pid), {})[name] = str(value)
            return
        new_pid = self._pids.get(_key(pid))
        if new_pid is None:
            new_pid = self._pids[_key(pid)] = (self._place.rank + 1) * _PIDS + len(self._pids)
            yield from self._names(pid, new_pid)
        event["pid"] = new_pid
        if event.get("cat") == CATEGORY and event.get("tid").__class__ is int and event["tid"] not in _OURS:
            yield from self._beside(event)
        if (begin := number(event, "ts")) is not None and event.get("ph") != "M":
            event["ts"] = round(begin + self._place.shift_us, 3)
        if "id" in event:
            event["id"] = self._own(event["id"])
        args = event.get("args")
        if args.__class__ is dict:
            for key in _IDS:
                if key in args:
                    args[key] = self._own(args[key])
        yield event

    def _beside(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        pid, thread = event["pid"], event["tid"]
        event["tid"] = thread + _ANNOTATIONS
        if (pid, thread) not in self._annotated:
            self._annotated.add((pid, thread))
            for name, args in (("thread_name", {"name": f"annotations of thread {thread}"}),
                               ("thread_sort_index", {"sort_index": thread})):  # fmt: skip
                yield {"ph": "M", "name": name, "pid": pid, "tid": event["tid"], "ts": 0, "args": args}

    def _own(self, number: object) -> object:
        """An id that no other rank has: flows and launches must not lead into another rank's."""
        if isinstance(number, int):
            return number * self._place.count + self._place.index
        return f"{number}.{self._place.index}"

    def _names(self, pid: object, number: int) -> Iterator[dict[str, Any]]:
        title, said = self._place.title, self._said.get(_key(pid), {})
        if number % _PIDS:
            title += f": {said.get('process_labels') or said.get('process_name') or pid}"
        for name, args in (("process_name", {"name": title}), ("process_sort_index", {"sort_index": number})):
            yield {"ph": "M", "name": name, "pid": number, "tid": 0, "ts": 0, "args": args}


def _key(pid: object) -> object:
    """A pid may be a number or a word; what else it is, it is by its text."""
    return pid if pid.__class__ in (int, str) else repr(pid)
