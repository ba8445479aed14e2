"""Detect half precision and a GradScaler that do not fit.

float16 without one, bfloat16 with one, or an optimizer that steps without the scaler that scaled its loss. It reads the
autocast of the wrapped model's forward, or FSDP's own mixed precision, the tensors where each backward begins, and the
scaler on the stack of the optimizer's step; three times in one window. A script that scales the loss, the first
gradient or the gradients itself is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.gradients import CHANGES_GRADIENTS
from distdbg.worker.guards.shared.graphs import begins_with_ones, is_scaled_by_hand
from distdbg.worker.guards.shared.scalers import ScalerGuard, autocast_of, scaler_of_step, stage_of
from distdbg.worker.guards.shared.units import policy_dtype, units_of
from distdbg.worker.hook_points import roots_of
from distdbg.worker.user_code import mentioned, users_line

_TIMES = 3
_SENTENCES = {
    "float16": "float16 is trained without a GradScaler",
    "bfloat16": "bfloat16 needs no GradScaler",
    "past": "the optimizer steps past the GradScaler that scaled the loss",
}


class ScalerMisused(ScalerGuard):
    id = "scaler-misused"
    modes = ("off", "warn", "error")
    costs = "about 20 us for each of ten steps in a thousand"
    blind = (
        "models without DDP or FSDP, models that switch autocast on within their forward; a loss that is scaled and "
        "then put together with others"
    )

    def window(self) -> None:
        self._begin_step()
        self._times: dict[tuple[int, str], int] = {}
        self._policies: dict[int, str] = {}
        self.listen_in_window(forward=self._forward, backward=self._backward, optimizer=self._steps)

    def _begin_step(self) -> None:
        self._dtypes: set[str] = set()
        self._backwards = self._by_hand = self._plain = 0
        self._scaler: Callable[[], Any] = lambda: None
        #: the scaler's own: update() puts another in its place, and only where gradients were unscaled
        self._states: object = None

    def _forward(self, module: Any) -> None:
        self._dtypes.add(autocast_of(module) or self._policy_of(module))

    def _policy_of(self, module: Any) -> str:
        if not module.training or not sys.modules["torch"].is_grad_enabled():
            return ""
        if id(module) not in self._policies:
            self._policies[id(module)] = policy_dtype(units_of(module))
        return self._policies[id(module)]

    def _backward(self, frame: FrameType) -> None:
        root = next(iter(roots_of(frame)), None)
        if root is None:
            return
        self._backwards += 1
        scaler = self.scaler_of(root)
        if scaler is not None:
            self._scaler, self._states = scaler, scaler()._per_optimizer_states
        elif not begins_with_ones(frame) or is_scaled_by_hand(root):
            self._by_hand += 1
        else:
            self._plain += 1

    def _steps(self, optimizer: Any) -> None:
        scaled_by, steps_with = self._scaler(), scaler_of_step()
        kind = ""
        if not self._by_hand and self._backwards:
            if scaled_by is not None and steps_with is None:
                # an optimizer of a loss that was never scaled steps by itself, whatever others do
                still = scaled_by._per_optimizer_states is self._states and stage_of(scaled_by, optimizer) == "READY"
                kind = "past" if still and not self._plain else ""
            elif scaled_by is None and steps_with is None and self._dtypes == {"float16"}:
                kind = "float16"
            elif scaled_by is not None and scaled_by is steps_with and self._dtypes == {"bfloat16"}:
                kind = "bfloat16"
        self._begin_step()
        times = self._times.get((id(optimizer), kind), 0) + 1
        self._times = {key: count for key, count in self._times.items() if key[0] != id(optimizer)}
        self._times[id(optimizer), kind] = times
        if kind and times == _TIMES and not (kind == "past" and mentioned(CHANGES_GRADIENTS)):
            self.report(users_line(), _SENTENCES[kind], misuse=kind, times=times)
