"""Make a DataLoader repeat one batch.

The batch is copied before the script gets it, and again each time, so changes of the script do not reach the next one.
The loaders are those that had given a batch when the first backward began, with gradients on: not the validation before
it. A loader that turns out not to be the training's (batches, but no backward) continues as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.bus import Bus

#: Batches without a backward that show that a loader is not the training's.
_NOT_TRAINING = 64


class Repeating:
    """Listens until the first backward, then only for new passes over a loader. `repeated` counts batches that
    were not loaded; `failed` is why there is none."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        #: by its sampler, which all iterators of a DataLoader share: the iterator, and its first batch
        self._given: dict[int, tuple[Any, Callable[[], Any], Any]] = {}
        self._batches: dict[int, tuple[Any, Any]] = {}
        self._unused = self.repeated = 0
        self.loaders = 0
        self.failed = ""
        bus.subscribe("pass-begins", self._first)
        bus.subscribe("data-end", self._ends)
        bus.subscribe("pass", self._anew)

    def backward(self) -> None:
        """A backward begins: the loaders that have given a batch are the training's."""
        self._unused = 0
        if self._batches or not self._given:
            return
        given, self._given = self._given, {}
        self._bus.unsubscribe("pass-begins", self._first)
        self._bus.unsubscribe("data-end", self._ends)
        for key, (sampler, reference, batch) in given.items():
            self._batches[key] = sampler, batch  # kept alive, so that no other sampler gets its id
            iterator = reference()
            if iterator is not None:
                self._hold(iterator, batch)
        self.loaders = len(self._batches)

    def _first(self, began: tuple[Any, Any]) -> None:
        iterator, batch = began
        if not sys.modules["torch"].is_grad_enabled():
            return
        if not hasattr(iterator, "_next_data") or _sampler(iterator) is None:
            self.failed = f"a {type(iterator).__name__} loads in a way that is not known"
            return
        from _weakref import ref

        sampler = _sampler(iterator)
        self._given.setdefault(id(sampler), (sampler, ref(iterator), _copy(batch)))

    def _ends(self, iterator: Any) -> None:
        """A pass that ends before any backward is no training."""
        self._given.pop(id(_sampler(iterator)), None)

    def _anew(self, iterator: Any) -> None:
        """Of the same loader, or of another one."""
        found = self._batches.get(id(_sampler(iterator)))
        if found is not None and sys.modules["torch"].is_grad_enabled():
            self._hold(iterator, found[1])

    def _hold(self, iterator: Any, batch: Any) -> None:
        """Replace the method that loads: `__next__` stays torch's, and so do its hooks."""

        def again() -> Any:
            self._unused += 1
            if self._unused > _NOT_TRAINING:
                self._batches.clear()
                del iterator._next_data
                return iterator._next_data()
            self.repeated += 1
            iterator._num_yielded = 0  # it neither ends nor complains that it gives more than it has
            return _copy(batch)

        iterator._next_data = again
        iterator._distdbg_batches = -1


def _sampler(iterator: Any) -> Any:
    return getattr(iterator, "_index_sampler", None)


def _copy(batch: Any) -> Any:
    """A batch that cannot be copied is repeated as it is."""
    from copy import deepcopy

    try:
        return deepcopy(batch)
    except Exception:
        return batch
