"""Detect micro-batches at the end of an epoch that are accumulated and never stepped.

It counts: so many backwards made each step; the pass ended with fewer after its last step; and the next step, in
another pass, came after a full number of backwards again. A script that steps after the loop, at the last batch, or
counts over epochs drops none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where, users_line

_STEPS = 3
_MOST_PASSES = 1000


class LeftoverStepsDropped(Guard):
    id = "leftover-steps-dropped"
    costs = "about 10 us for each of the first three steps of a pass over a loader"
    blind = "IterableDataset, whose end is unknown; the last epoch; passes that another loader interrupts"

    def begin(self) -> None:
        self._now: _AccumulationPass | None = None
        self._over: tuple[_AccumulationPass, int, int] | None = None
        self._left = _MOST_PASSES
        self.listen("pass", self._begins)
        self.listen("data-end", self._ends)

    def _begins(self, iterator: Any) -> None:
        self._left -= 1
        if self._left < 0:
            self.unsubscribe()
            return
        reference = weak(iterator)
        self._now = None if reference is None else _AccumulationPass(reference, users_line(), self.context.counts())
        self._listen()

    def _listen(self) -> None:
        self.unsubscribe("optimizer")
        self.listen("optimizer", self._steps)

    def _steps(self, _optimizer: object) -> None:
        backwards = self.context.backwards
        if self._over is not None:
            (before, left, at_end), self._over = self._over, None
            if backwards - at_end == before.each:
                self.report(before.where, left=left, each=before.each)
        if self._now is None or self._now.steps_at(backwards) >= _STEPS:
            self.unsubscribe("optimizer")

    def _ends(self, iterator: Any) -> None:
        now, self._now = self._now, None
        if now is None or now.of() is not iterator:
            return
        batches, backwards, steps = (a - b for a, b in zip(self.context.counts(), now.since, strict=True))
        if now.each > 1 and batches == backwards and backwards // now.each == steps and backwards % now.each:
            self._over = now, backwards % now.each, self.context.backwards
            self._listen()


class _AccumulationPass:
    """`each` is how many backwards make a step, 0 where they differ."""

    def __init__(self, of: Callable[[], Any], where: Where | None, since: tuple[int, int, int]) -> None:
        self.of, self.where, self.since = of, where, since
        self.each, self._last, self._steps = 0, since[1], 0

    def steps_at(self, backwards: int) -> int:
        number, self._last = backwards - self._last, backwards
        self.each = number if self._steps == 0 or number == self.each else 0
        self._steps += 1
        return self._steps
