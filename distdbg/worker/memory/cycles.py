"""Detect tensors that only the garbage collector frees, because a reference cycle holds them.

After a count some of the young tensors are watched through weak references: one that is freed during a collection was
held by a cycle, for reference counting frees the others between collections. The collector's callbacks are removed at
the next count, which reports the result.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from distdbg.worker.context import RankContext

_MOST, _COLLECTIONS = 200, 50
#: Tensors and bytes from which on it is reported.
_FEW, _WORTH = 8, 1 << 20


class CycleDetector:
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
        sized = sorted(((_size(t), n) for n, t in enumerate(tensors) if type(t).__name__ != "Parameter"), reverse=True)
        chosen = [(tensors[n], size) for size, n in sized[:_MOST] if size]
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
        if self._freed >= _FEW and self._bytes >= _WORTH:
            self._context.fact("cycles", freed=self._freed, bytes=self._bytes, owners=self._owners,
                               step=self._context.page.steps())  # fmt: skip
        self._freed = self._bytes = self._left = 0
        self._watched, self._alive = [], []


def _size(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().nbytes())
    except Exception:  # one without a storage
        return 0


def _owners(tensors: list[Any]) -> dict[str, int]:
    """The script's classes whose instances hold them in an attribute: `name (file)` -> number. Takes 40 ms.

    From Python 3.11 on an instance holds its attributes itself, until its `__dict__` is read.
    """
    import sys

    from distdbg.worker.user_code import belongs_to_user

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
