"""Detect Python containers that grow from step to step: a list that keeps every loss, a cache without a limit.

A count takes some 0.1 s, so it is done at steps 16, 32, 64, 128, …: 17 times in a million. A container that has grown
in each of the last three intervals, and as fast in the last as before, is reported with its content, its holder and the
step since which it grows. Each count reports anew: the last one has no container that stopped growing.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.memory import figures
from distdbg.worker.memory.holders import holder_of
from distdbg.worker.memory.live import Tensors, tensors_of, without_subclass_code
from distdbg.worker.user_code import belongs_to_user

_FIRST = 16
_SMALLEST = 8
#: Growth of so many entries a step, in so many distances on end.
_RATE, _DISTANCES = 0.2, 3
_AS_FAST = 0.8
#: The newest entries that are inspected, and containers that are reported.
_SAMPLE, _MOST = 32, 5


class ContainerCensus:
    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._next = _FIRST
        #: by id: (step, epoch, length) at the counts since when it has been growing
        self._growing: dict[int, list[tuple[int, int, int]]] = {}
        self.epochs = 0
        self._cycles = CycleDetector(context)

    def at(self, step: int) -> None:
        """Called at each step: next to nothing until the next count is due."""
        if step >= self._next:
            while self._next <= step:
                self._next *= 2
            self.count(step)

    def count(self, step: int) -> None:
        begun = time.thread_time()
        everything = gc.get_objects()
        containers = [c for c in everything if type(c) in _KINDS and len(c) >= _SMALLEST]
        with without_subclass_code():
            tensors = tensors_of(everything)
            live = Tensors(tensors)
            everything.clear()
            self._cycles.watch(tensors)
            tensors.clear()
            self._follow(containers, step)
            suspects = self._suspects(containers)
        epochs = self.epochs if self._context.page.batches() else -1  # no loader whose end sends events
        self._context.fact("census", step=step, epochs=epochs, rss=figures.rss(),
                           containers=len(containers), tensors=live.count, tensor_bytes=live.bytes, graphs=live.graphs,
                           growing=suspects, seconds=round(time.thread_time() - begun, 4))  # fmt: skip

    def _follow(self, containers: list[Any], step: int) -> None:
        """Ids name containers: one that took the place of another would have to be longer than it was, each time."""
        before, self._growing = self._growing, {}
        mine = {id(before), id(containers), id(vars(self))}
        for one in containers:
            key, length = id(one), len(one)
            if key in mine:
                continue
            points = before.get(key, [])
            if points and length <= points[-1][2]:
                points = []
            self._growing[key] = [*points[-_DISTANCES:], (step, self.epochs, length)]

    def _suspects(self, containers: list[Any]) -> list[dict[str, object]]:
        known = ((one, self._growing.get(id(one), [])) for one in containers)
        found = [(one, points) for one, points in known if len(points) > _DISTANCES and _steady(points)]
        found.sort(key=lambda pair: pair[1][0][2] - pair[1][-1][2])
        suspects = [_describe(one, points) for one, points in found[: 4 * _MOST]]
        return sorted((t for t in suspects if t), key=lambda t: -float(t["bytes_a_step"]))[:_MOST]  # type: ignore[arg-type]


#: Types whose length and content need no code of the script.
_KINDS = {list, dict, set, deque, defaultdict, OrderedDict}
_SIZED = {*_KINDS, tuple, frozenset}


def _steady(points: list[tuple[int, int, int]]) -> bool:
    rates = [(b[2] - a[2]) / (b[0] - a[0]) for a, b in zip(points, points[1:])]  # noqa: B905, RUF007 -- one less, by design
    return min(rates) >= _RATE and rates[-1] >= _AS_FAST * max(rates)


def _describe(one: Any, points: list[tuple[int, int, int]]) -> dict[str, object]:
    """With the size of its newest entries; empty for a container that is too small to report."""
    entries = one[-_SAMPLE:] if type(one) is list else list(one.values() if isinstance(one, dict) else one)[-_SAMPLE:]
    parts = list(_parts(entries))
    tensors = tensors_of(parts)
    live = Tensors(tensors)
    others = sum(_size(part) for part in parts)
    rate = (points[-1][2] - points[0][2]) / (points[-1][0] - points[0][0])
    each = rate / (len(entries) or 1)
    on_device = each * sum(size for device, size in live.bytes.items() if device not in ("cpu", "meta"))
    size = on_device + each * (live.bytes.get("cpu", 0) + others)
    graph = live.graphs > (len(entries) or 1) // 2
    if size < _WORTH and not graph:
        return {}
    return {
        "type": type(one).__name__, "length": points[-1][2], "rate": round(rate, 3), "since": points[0][0],
        "epochs": points[-1][1] - points[0][1], "bytes_a_step": round(size), "device_a_step": round(on_device, 2),
        "graph": graph, "tensors": len(tensors), "of": type(entries[0]).__name__ if entries else "",
        "most": getattr(one, "maxlen", None), **holder_of(one),
    }  # fmt: skip


#: Bytes a step below which nothing is reported: a million steps are 4 GB then.
_WORTH = 4096
#: So deep is an entry looked into: an object's attributes, a list among them, what is in that. And so far; what is
#: much longer is not even listed.
_DEPTH, _MOST_PARTS, _LONG = 3, 1024, 65_536


def _parts(entries: list[object]) -> Iterable[object]:
    """What the entries are made of, each once; without what most of them share, as the model of a record's maker."""
    found: dict[int, tuple[object, int]] = {}
    for entry in entries:
        for part in _parts_of(entry):
            found[id(part)] = part, found.get(id(part), (part, 0))[1] + 1
    return [part for part, times in found.values() if times <= max(1, len(entries) // 2)]


def _parts_of(entry: object) -> list[object]:
    """An entry and what it holds, as the collector sees it: no code of a named tuple, a record or a model's output is
    run. Not looked into are tensors, and what can be called: classes, functions, modules."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", type)
    found, level = {id(entry): entry}, [entry]
    for _ in range(_DEPTH):
        inner = [
            o for o in level
            if not (callable(o) or issubclass(type(o), tensor) or (type(o) in _SIZED and len(o) > _LONG))  # type: ignore[arg-type]
        ]  # fmt: skip
        level = [part for part in gc.get_referents(*inner) if id(part) not in found][: _MOST_PARTS - len(found)]
        found.update((id(part), part) for part in level)
    return list(found.values())


def _size(part: object) -> int:
    """Of what is no tensor: an array's own bytes, else what Python says without asking the object's own code."""
    from sys import getsizeof

    if type(part).__module__ == "numpy" and type(part).__name__ == "ndarray":
        return int(part.nbytes) if part.base is None else 0  # type: ignore[attr-defined]
    return getsizeof(part) if type(part) in (bytes, bytearray, str, list, dict) else 0


_MOST_WATCHED, _COLLECTIONS = 200, 50
#: Tensors and bytes from which on it is reported.
_FEWEST_FREED, _LEAST_BYTES = 8, 1 << 20


class CycleDetector:
    """Detect tensors that only the garbage collector frees, because a reference cycle holds them.

    After a count some of the young tensors are watched through weak references: one that is freed during a collection
    was held by a cycle, for reference counting frees the others between collections. The collector's callbacks are
    removed at the next count, which reports the result."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._watched: list[tuple[Callable[[], Any], int]] = []
        self._alive: list[tuple[Callable[[], Any], int]] = []
        self._left = 0
        self._owners: dict[str, int] = {}
        self._freed = self._bytes = 0

    def watch(self, tensors: list[Any]) -> None:
        """Watch the largest tensors that are no parameters."""
        from _weakref import ref

        self._end()
        sized = sorted(
            ((_storage_bytes(t), n) for n, t in enumerate(tensors) if type(t).__name__ != "Parameter"), reverse=True
        )
        chosen = [(tensors[n], size) for size, n in sized[:_MOST_WATCHED] if size]
        self._owners = _owners([tensor for tensor, _ in chosen])
        self._watched = [(ref(tensor), size) for tensor, size in chosen]
        if self._watched:
            self._left = _COLLECTIONS
            gc.callbacks.append(self._heard)

    def _heard(self, phase: str, _info: dict[str, int]) -> None:
        """Called while the collector iterates over its callbacks: removing ours here would make it skip the next."""
        if not self._left:
            return
        if phase == "start":
            self._alive = [one for one in self._watched if one[0]() is not None]
            return
        gone = [size for reference, size in self._alive if reference() is None]
        self._watched, self._alive = [one for one in self._alive if one[0]() is not None], []
        self._freed += len(gone)
        self._bytes += sum(gone)
        self._left = self._left - 1 if self._watched else 0

    def _end(self) -> None:
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)
        if self._freed >= _FEWEST_FREED and self._bytes >= _LEAST_BYTES:
            self._context.fact("cycles", freed=self._freed, bytes=self._bytes, owners=self._owners,
                               step=self._context.page.steps())  # fmt: skip
        self._freed = self._bytes = self._left = 0
        self._watched, self._alive = [], []


def _storage_bytes(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().nbytes())
    except Exception:  # one without a storage
        return 0


def _owners(tensors: list[Any]) -> dict[str, int]:
    """The script's classes whose instances hold them in an attribute: `name (file)` -> number. Takes 40 ms.

    From Python 3.11 on an instance holds its attributes itself, until its `__dict__` is read.
    """
    holders = gc.get_referrers(*tensors) if tensors else []
    attributes = [one for one in holders if type(one) is dict]
    known, found = {id(one) for one in attributes}, dict[str, int]()
    direct = {id(one) for one in holders}
    # Looked up before it is put together: the concatenated list would find itself.
    of_attributes = gc.get_referrers(*attributes) if attributes else []
    for owner in (*holders, *of_attributes):
        cls = type(owner)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if (
            isinstance(file, str)
            and belongs_to_user(file)
            and (id(owner) in direct or id(getattr(owner, "__dict__", None)) in known)
        ):
            name = f"{cls.__name__} ({file})"
            found[name] = found.get(name, 0) + 1
    return found
