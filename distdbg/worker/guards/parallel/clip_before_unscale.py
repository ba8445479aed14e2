"""Detect gradients that are clipped before the GradScaler unscales them.

That is: gradients of an optimizer are clipped to a small bound while its scaler has not unscaled them, and the next
step of that optimizer uses that scaler; three times in one window. To multiply the bound by the scale is right, and so
is measuring the norm with a bound that is never reached.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.scalers import scaler_of_step, stage_of
from distdbg.worker.models import parameters_of, weak
from distdbg.worker.user_code import Where, users_line

_TIMES = 3
#: A bound above it was made for scaled gradients, or for none.
_LARGEST_BOUND = 100.0


class ClipBeforeUnscale(Guard):
    id = "clip-before-unscale"
    modes = ("off", "warn", "error")
    costs = "about 15 us for each of ten steps in a thousand that go through a GradScaler"
    blind = (
        "clipping that is not torch's, or with foreach=False; FSDP1's own clip_grad_norm_; scalers that are not torch's"
    )

    def window(self) -> None:
        self._of: dict[int, _Scaled] = {}
        self.listen_in_window(optimizer=self._steps)

    def window_ends(self) -> None:
        self._of = {}

    def _steps(self, optimizer: Any) -> None:
        scaler, known = scaler_of_step(), self._of.get(id(optimizer))
        if scaler is None:
            self._of.pop(id(optimizer), None)
            return
        if known is None:
            references = weak(optimizer), weak(scaler)
            if references[0] is not None and references[1] is not None:
                if not self._of:
                    self.listen_in_window(clip=self._clips)
                self._of[id(optimizer)] = _Scaled(references[0], references[1])
            return
        known.times = known.times + 1 if known.clipped else 0
        if known.times >= _TIMES:
            self.report(
                known.where, "gradients are clipped before they are unscaled", bound=known.bound, times=known.times
            )
        known.clipped = False

    def _clips(self, frame: FrameType) -> None:
        variables = frame.f_locals
        gradients, bound = variables.get("grads") or (), variables.get("max_norm", variables.get("clip_value"))
        if not gradients or not isinstance(bound, float) or not 0 < bound <= _LARGEST_BOUND:
            return
        for one in self._of.values():
            optimizer, scaler = one.optimizer(), one.scaler()
            if optimizer is None or scaler is None or stage_of(scaler, optimizer) != "READY":
                continue
            if any(p.grad is gradients[0] for p in parameters_of(optimizer)):
                one.clipped, one.bound, one.where = True, bound, users_line()


class _Scaled:
    """An optimizer that steps through a scaler."""

    def __init__(self, optimizer: Callable[[], Any], scaler: Callable[[], Any]) -> None:
        self.optimizer, self.scaler = optimizer, scaler
        self.clipped = False
        self.bound = 0.0
        self.times = 0
        self.where: Where | None = None
