"""Detect a loss in half precision that is computed outside autocast while the forward runs under it.

Autocast computes torch's loss functions in float32: a half-precision result, in a model whose parameters are not, was
computed outside. Losses that combine other functions cannot be judged.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.graphs import chain_of, dtype_of, kind_of
from distdbg.worker.guards.shared.scalers import autocast_of
from distdbg.worker.hook_points import roots_of
from distdbg.worker.user_code import users_line

_TIMES = 3
#: Those that autocast computes in float32 on every device.
_LOSSES = ("MseLoss", "NllLoss", "NllLoss2D", "SmoothL1Loss", "HuberLoss")


class LossOutsideAutocast(Guard):
    id = "loss-outside-autocast"
    modes = ("off", "warn", "error")
    costs = "about 25 us for each of ten steps in a thousand, where the forward runs under autocast"
    blind = (
        "models without DDP or FSDP; several losses that are added up; other losses than cross entropy, NLL, MSE, "
        "smooth L1 and Huber; FSDP's own mixed precision"
    )

    def window(self) -> None:
        self._dtype = ""
        self._times = 0
        self.listen_in_window(forward=self._forward, backward=self._backward)

    def _forward(self, module: Any) -> None:
        self._dtype = autocast_of(module)

    def _backward(self, frame: FrameType) -> None:
        dtype, self._dtype = self._dtype, ""
        if not dtype:
            return
        loss = next((n for n in chain_of(next(iter(roots_of(frame)), None)) if kind_of(n) in _LOSSES), None)
        outside = loss is not None and dtype_of(loss) == dtype
        self._times = self._times + 1 if outside else 0
        if self._times == _TIMES:
            self.report(users_line(), f"the loss is computed in {dtype}", loss=kind_of(loss), dtype=dtype)
