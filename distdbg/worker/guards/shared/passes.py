"""Detect which passes over DataLoaders are training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where

#: Loaders that are remembered; the oldest are forgotten.
_MOST = 64
#: Later passes are not observed: a script that repeats one batch forever pays no more.
_MOST_PASSES = 1000


class Pass:
    """One time through a loader. `before` is the last one of the same loader that was training."""

    __slots__ = ("about", "batches", "before", "steps", "total", "where")

    def __init__(self, steps: int, batches: int, total: int, before: Pass | None) -> None:
        self.steps, self.batches, self.total, self.before = steps, batches, total, before
        #: the guard's own
        self.about: Any = None
        self.where: Where | None = None


class PassGuard(Guard):
    """A guard that gets each pass that begins, and each that was training: half of the loader's batches were taken, and
    the optimizer stepped meanwhile. Loaders are distinguished by their sampler. Where a script uses two loaders at the
    same time, the one that began first is not judged."""

    def begin(self) -> None:
        self._trained: dict[int, tuple[Callable[[], Any], Pass]] = {}
        self._now: tuple[Callable[[], Any], Pass] | None = None
        self._left = _MOST_PASSES
        self.listen("pass", self._pass_begins)
        self.listen("data-end", self._data_ends)

    def pass_begins(self, now: Pass, iterator: Any) -> bool:
        """Whether to observe this pass."""
        raise NotImplementedError

    def trained(self, now: Pass) -> None:
        """It is over, and was training."""
        raise NotImplementedError

    def finish(self) -> None:
        self._close()

    def now_of(self, iterator: Any) -> Pass | None:
        """The present pass, where it is this iterator's and observed."""
        ours = self._now is not None and self._now[0]() is getattr(iterator, "_index_sampler", None)
        return self._now[1] if self._now is not None and ours else None

    def _pass_begins(self, iterator: Any) -> None:
        self._close()
        self._left -= 1
        if self._left < 0:
            self.unsubscribe("pass")
            return
        sampler = getattr(iterator, "_index_sampler", None)
        reference = weak(sampler)
        if reference is None:
            return
        known, before = self._trained.get(id(sampler), (None, None))
        if known is not None and known() is not sampler:
            before = None
        now = Pass(self.context.steps, self.context.batches, iterator.__dict__.get("_distdbg_batches", -1), before)
        if self.pass_begins(now, iterator):
            self._now = reference, now

    def _data_ends(self, iterator: Any) -> None:
        if self._now is not None and self._now[0]() is getattr(iterator, "_index_sampler", None):
            self._close()

    def _close(self) -> None:
        """The pass is over, or another has begun: all batches since its start are its own."""
        if self._now is None:
            return
        (reference, now), self._now = self._now, None
        sampler, taken = reference(), self.context.batches - now.batches
        if sampler is None or self.context.steps <= now.steps or 2 * taken < now.total:
            return
        self.trained(now)
        now.before = None
        self._trained.pop(id(sampler), None)
        self._trained[id(sampler)] = reference, now
        if len(self._trained) > _MOST:
            del self._trained[next(iter(self._trained))]


def samplers_of(iterator: Any) -> Iterator[Any]:
    """The iterator's sampler, and those inside it: a batch sampler has one, and frameworks wrap them."""
    sampler = getattr(iterator, "_index_sampler", None)
    for _ in range(6):
        if sampler is None:
            return
        yield sampler
        sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
