"""Detect evaluations of the trained model in train mode.

Such an evaluation is a complete pass over a loader, with one forward a batch, each without autograd and in train mode,
without a backward or a step, over data that was never trained on; and a second one after more training. This leaves out
what is right and looks the same: Monte Carlo dropout (it repeats a batch or the data), new statistics of batch norm
(from data that is trained on), a generator that is called between steps, cached gradients (a forward of each batch that
is trained on). A script that ever calls the model in eval mode knows about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import GuardContext
from distdbg.worker.models import weak, weak_or_gone
from distdbg.worker.user_code import Where, users_line

#: Words of a script that has thought of it.
DELIBERATE = re.compile(
    r"\.eval\(|\.train\(\s*(mode\s*=\s*)?(False|not\b)|\.training\b|monte.?carlo|mc.?dropout|update_bn|running_(mean|var)",
    re.IGNORECASE,
)
#: Words of one that decides on the mode anew: `train(epoch < 2)`, `train(not frozen)`, `train(was_training)`.
MODE_CHOSEN = re.compile(
    r"(?<!super\(\))\.train\(\s*(mode\s*=\s*)?(not\b|[^(),]*([<>]|[!=]=)|[\w.]*(mode|training|is_train)\s*\))"
)
_BATCHES = 3
_ROUNDS = 2
_MOST = 64
#: Steps whose optimizer is checked after the first such evaluation: a GAN's alternate.
_STEPS = 16


class Evaluations:
    """`rounds` of evaluation in train mode, the newest at `where`, of `model`; `off` once one may be intended."""

    def __init__(self, context: GuardContext) -> None:
        self._context = context
        self.off = False
        self.rounds = 0
        self.where: Where | None = None
        self.model: Callable[[], Any] = lambda: None
        self._now: _EvaluationPass | None = None
        self._trained_on: list[Callable[[], Any]] = []
        #: steps at the end of the last round, and the data that it went over
        self._steps, self._over = -1, set[int]()
        self._optimizers, self._left = set[int](), _STEPS

    @property
    def repeated(self) -> bool:
        return not self.off and self.rounds >= _ROUNDS

    def begins(self, iterator: Any) -> None:
        self._close()
        self._now = None if self.off else _EvaluationPass(iterator, self._context.counts())

    def ends(self, iterator: Any) -> bool:
        """Whether this was the first such evaluation."""
        now, before = self._now, self.rounds
        self._close()
        if now is None or self.off or now.of() is not iterator:
            return False
        batches, backwards, steps = (a - b for a, b in zip(self._context.counts(), now.since, strict=True))
        data = now.data() if now.data is not None else None
        if not now.fits or backwards or steps or min(batches, now.forwards) < _BATCHES or data is None:
            return False
        trained_on = {id(one()) for one in self._trained_on}  # never by ==, which of tensors is a tensor
        if {id(data), id(getattr(data, "dataset", data))} & trained_on:
            return False
        if self._context.steps > self._steps:
            self.rounds, self._steps, self._over = self.rounds + 1, self._context.steps, set()
        self.off = id(data) in self._over  # the same data again: the script needs several answers
        self._over.add(id(data))
        self.where, self.model = now.where, now.model
        return before == 0 and self.rounds == 1

    def forward(self, model: Callable[[], Any], training: bool, autograd: bool, *, trained: bool) -> None:
        """`trained`: the model has been seen to train before."""
        if not training:
            self.off = True
        if self._now is not None and not self.off:
            self._now.forward(model, training and trained and not autograd, self._context.batches)

    def steps_with(self, optimizer: object) -> bool:
        """Whether enough steps were checked."""
        self._optimizers.add(id(optimizer))
        self._left -= 1
        self.off = self.off or len(self._optimizers) > 1
        return self._left <= 0

    def _close(self) -> None:
        """Data counts as training data where steps were made before the next pass began, or this one ended."""
        now, self._now = self._now, None
        if now is None or now.data is None or self._context.steps <= now.since[2]:
            return
        data = now.data()
        if data is not None and not any(one() is data for one in self._trained_on):
            self._trained_on = [*self._trained_on[-_MOST:], now.data]


class _EvaluationPass:
    """`fits` while there was one forward a batch, of one model, each as an evaluation in train mode has them."""

    def __init__(self, iterator: Any, since: tuple[int, int, int]) -> None:
        self.of = weak_or_gone(iterator)
        self.data = weak(getattr(iterator, "_dataset", None))
        self.since = since
        self.forwards, self.fits = 0, True
        self.where: Where | None = None
        self.model: Callable[[], Any] = lambda: None

    def forward(self, model: Callable[[], Any], as_meant: bool, batches: int) -> None:
        self.forwards += 1
        if self.forwards == 1:
            self.model = model
            self.where = users_line() if as_meant else None
        self.fits = self.fits and as_meant and self.model is model and batches - self.since[0] == self.forwards
