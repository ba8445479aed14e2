"""Detect mistakes with autocast and GradScaler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.backward import (
    CHANGES_GRADIENTS,
    begins_with_ones,
    chain_of,
    dtype_of,
    is_scaled_by_hand,
    kind_of,
)
from distdbg.worker.guards.shared.base import IN_A_ROW, Guard
from distdbg.worker.guards.shared.scalers import ScalerGuard, autocast_of, scaler_of_step, stage_of
from distdbg.worker.guards.shared.units import policy_dtype, units_of
from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.models import parameters_of, weak
from distdbg.worker.user_code import Where, belongs_to_user, frames_above, mentioned, users_line

_MOST_LINES = 64
_FRAMES = 12
#: Functions between a region's `__enter__` and the script.
_BETWEEN = ("__enter__", "enter_context")


class AutocastDtypesMixed(Guard):
    """Detect an autocast region to one 16-bit dtype inside a region to the other, three times at one line.

    Only regions of the script count, with gradients on: libraries have their own reasons, `enabled=False` computes in
    float32 on purpose, and a frozen encoder under no_grad may have its own dtype."""

    id = "autocast-dtypes-mixed"
    modes = ("off", "warn", "error")
    costs = "about 1 us for each autocast region that is entered in ten steps of a thousand"
    blind = "regions that a library enters for the script; compiled regions; types that a script casts to by hand"

    def window(self) -> None:
        self._lines: set[str] = set()
        self.listen_in_window(autocast=self._enters)

    def _enters(self, region: Any) -> None:
        if not getattr(region, "prev", False) or not region._enabled or region.fast_dtype == region.prev_fastdtype:
            return
        inner, outer = region.fast_dtype, region.prev_fastdtype
        if inner.itemsize != 2 or outer.itemsize != 2 or not sys.modules["torch"].is_grad_enabled():
            return
        where = _entered_at()
        if where is None:
            return
        line = f"{where[0]}:{where[1]}"
        if len(self._lines) < _MOST_LINES:
            self._lines.add(line)
        if line in self._lines and self.in_a_row(True, line) == IN_A_ROW:
            names = [str(dtype).removeprefix("torch.") for dtype in (inner, outer)]
            self.report(
                where, f"autocast to {names[0]} inside of autocast to {names[1]}",
                inner=names[0], outer=names[1], device=str(region.device),
            )  # fmt: skip


def _entered_at() -> Where | None:
    """The script's `with`, or its decorated function; None where other code enters."""
    entered = False
    for frame in frames_above(_FRAMES):
        code = frame.f_code
        if entered and belongs_to_user(code.co_filename):
            return [code.co_filename, frame.f_lineno, code.co_name]
        if code.co_name == "decorate_autocast":
            made = getattr(frame.f_locals.get("func"), "__code__", None)
            if made is None or not belongs_to_user(made.co_filename):
                return None
            return [made.co_filename, made.co_firstlineno, made.co_name]
        if entered and code.co_name not in _BETWEEN:
            return None
        entered = entered or code.co_name == "__enter__"
    return None


#: A bound above it was made for scaled gradients, or for none.
_LARGEST_BOUND = 100.0


class ClipBeforeUnscale(Guard):
    """Detect gradients that are clipped before the GradScaler unscales them.

    That is: gradients of an optimizer are clipped to a small bound while its scaler has not unscaled them, and the next
    step of that optimizer uses that scaler; three times in one window. To multiply the bound by the scale is right, and
    so is measuring the norm with a bound that is never reached."""

    id = "clip-before-unscale"
    modes = ("off", "warn", "error")
    costs = "about 15 us for each of ten steps in a thousand that go through a GradScaler"
    blind = (
        "clipping that is not torch's, or with foreach=False; FSDP1's own clip_grad_norm_; scalers that are not torch's"
    )

    def window(self) -> None:
        self._of: dict[int, _Scaled] = {}
        self.listen_in_window(optimizer=self._steps)

    def _steps(self, optimizer: Any) -> None:
        scaler, known = scaler_of_step(), self._of.get(id(optimizer))
        if scaler is None:
            self._of.pop(id(optimizer), None)
            self.in_a_row(False, id(optimizer))
            return
        if known is None:
            references = weak(optimizer), weak(scaler)
            if references[0] is not None and references[1] is not None:
                if not self._of:
                    self.listen_in_window(clip=self._clips)
                self._of[id(optimizer)] = _Scaled(references[0], references[1])
            return
        times = self.in_a_row(known.clipped, id(optimizer))
        if times >= IN_A_ROW:
            self.report(known.where, "gradients are clipped before they are unscaled", bound=known.bound, times=times)
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
        self.where: Where | None = None


#: Those that autocast computes in float32 on every device.
_LOSSES = ("MseLoss", "NllLoss", "NllLoss2D", "SmoothL1Loss", "HuberLoss")


class LossOutsideAutocast(Guard):
    """Detect a loss in half precision that is computed outside autocast while the forward runs under it.

    Autocast computes torch's loss functions in float32: a half-precision result, in a model whose parameters are not,
    was computed outside. Losses that combine other functions cannot be judged."""

    id = "loss-outside-autocast"
    modes = ("off", "warn", "error")
    costs = "about 25 us for each of ten steps in a thousand, where the forward runs under autocast"
    blind = (
        "models without DDP or FSDP; several losses that are added up; other losses than cross entropy, NLL, MSE, "
        "smooth L1 and Huber; FSDP's own mixed precision"
    )

    def window(self) -> None:
        self._dtype = ""
        self.listen_in_window(forward=self._forward, backward=self._backward)

    def _forward(self, module: Any) -> None:
        self._dtype = autocast_of(module)

    def _backward(self, frame: FrameType) -> None:
        dtype, self._dtype = self._dtype, ""
        if not dtype:
            return
        loss = next((n for n in chain_of(next(iter(roots_of(frame)), None)) if kind_of(n) in _LOSSES), None)
        outside = loss is not None and dtype_of(loss) == dtype
        if self.in_a_row(outside) == IN_A_ROW:
            self.report(users_line(), f"the loss is computed in {dtype}", loss=kind_of(loss), dtype=dtype)


_SENTENCES = {
    "float16": "float16 is trained without a GradScaler",
    "bfloat16": "bfloat16 needs no GradScaler",
    "past": "the optimizer steps past the GradScaler that scaled the loss",
}


class ScalerMisused(ScalerGuard):
    """Detect half precision and a GradScaler that do not fit.

    float16 without one, bfloat16 with one, or an optimizer that steps without the scaler that scaled its loss. It reads
    the autocast of the wrapped model's forward, or FSDP's own mixed precision, the tensors where each backward begins,
    and the scaler on the stack of the optimizer's step; three times in one window. A script that scales the loss, the
    first gradient or the gradients itself is left alone."""

    id = "scaler-misused"
    modes = ("off", "warn", "error")
    costs = "about 20 us for each of ten steps in a thousand"
    blind = (
        "models without DDP or FSDP, models that switch autocast on within their forward; a loss that is scaled and "
        "then put together with others"
    )

    def window(self) -> None:
        self._begin_step()
        self._policies: dict[int, str] = {}
        self.listen_in_window(forward=self._forward, backward=self._backward, optimizer=self._steps)

    def _begin_step(self) -> None:
        self._dtypes: set[str] = set()
        self._backwards = self._by_hand = self._plain = 0
        self._scaler: Callable[[], Any] = lambda: None
        #: the scaler's own: update() puts another in its place, and only where gradients were unscaled
        self._states: object = None

    def _forward(self, module: Any) -> None:
        dtype = autocast_of(module)
        if not dtype and module.training and sys.modules["torch"].is_grad_enabled():
            if id(module) not in self._policies:
                self._policies[id(module)] = policy_dtype(units_of(module))
            dtype = self._policies[id(module)]
        self._dtypes.add(dtype)

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
        times = {one: self.in_a_row(one == kind, (id(optimizer), one)) for one in _SENTENCES}
        if times.get(kind) == IN_A_ROW and not (kind == "past" and mentioned(CHANGES_GRADIENTS)):
            self.report(users_line(), _SENTENCES[kind], misuse=kind, times=IN_A_ROW)
