"""Detect which passes over DataLoaders are training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import sampler_of, weak
from distdbg.worker.user_code import Where

#: Loaders that are remembered; the oldest are forgotten.
_MOST = 64
#: Later passes are not observed: a script that repeats one batch forever pays no more.
_MOST_PASSES = 1000


class LoaderPass:
    """One time through a loader. `before` is the last one of the same loader that was training."""

    __slots__ = ("about", "batches", "before", "of", "steps", "total", "where")

    def __init__(self, of: Callable[[], Any], steps: int, batches: int, total: int, before: LoaderPass | None) -> None:
        self.of, self.steps, self.batches, self.total, self.before = of, steps, batches, total, before
        #: the guard's own
        self.about: Any = None
        self.where: Where | None = None


class PassGuard(Guard):
    """A guard that gets each pass that begins, and each that was training: half of the loader's batches were taken, and
    the optimizer stepped meanwhile. Loaders are distinguished by their sampler. Where a script uses two loaders at the
    same time, the one that began first is not judged."""

    def begin(self) -> None:
        self._trained: dict[int, LoaderPass] = {}
        self._now: LoaderPass | None = None
        self.listen("pass", self._pass_begins)
        self.listen("data-end", self._data_ends)

    def pass_begins(self, now: LoaderPass, iterator: Any) -> bool:
        """Whether to observe this pass."""
        raise NotImplementedError

    def trained(self, now: LoaderPass) -> None:
        """It is over, and was training."""
        raise NotImplementedError

    def finish(self) -> None:
        self._close()

    def now_of(self, iterator: Any) -> LoaderPass | None:
        """The present pass, where it is this iterator's and observed."""
        sampler = sampler_of(iterator)
        return self._now if self._now is not None and self._now.of() is sampler else None

    def _pass_begins(self, iterator: Any) -> None:
        self._close()
        sampler = sampler_of(iterator)
        reference = weak(sampler)
        if self.passes_end(_MOST_PASSES, "pass") or reference is None:
            return
        before = self._trained.get(id(sampler))
        if before is not None and before.of() is not sampler:
            before = None
        total = getattr(iterator, "_distdbg_batches", -1)
        now = LoaderPass(reference, self.page.steps(), self.page.batches(), total, before)
        if self.pass_begins(now, iterator):
            self._now = now

    def _data_ends(self, iterator: Any) -> None:
        if self.now_of(iterator) is not None:
            self._close()

    def _close(self) -> None:
        """The pass is over, or another has begun: all batches since its start are its own."""
        now, self._now = self._now, None
        sampler = None if now is None else now.of()
        if now is None or sampler is None or self.page.steps() <= now.steps:
            return
        if 2 * (self.page.batches() - now.batches) < now.total:
            return
        self.trained(now)
        now.before = None
        self._trained.pop(id(sampler), None)
        self._trained[id(sampler)] = now
        if len(self._trained) > _MOST:
            del self._trained[next(iter(self._trained))]


def samplers_of(iterator: Any) -> Iterator[Any]:
    """The iterator's sampler, and those inside it: a batch sampler has one, and frameworks wrap them."""
    sampler = sampler_of(iterator)
    for _ in range(6):
        if sampler is None:
            return
        yield sampler
        sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
