"""Find the GradScaler of an optimizer's step on the stack, and the dtype of autocast.

It works for all scalers of torch (torch.amp, torch.cuda.amp, FSDP's) and for libraries that call them (Accelerate,
Lightning).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import weak
from distdbg.worker.user_code import frames_above

_FILES = ("grad_scaler.py", "sharded_grad_scaler.py")
_FRAMES = 16
_MOST = 16


class ScalerGuard(Guard):
    """Knows the scalers that the script has made, without keeping them alive."""

    def begin(self) -> None:
        self._scalers: list[Callable[[], Any]] = []
        self.listen("scaler", self._made)

    def _made(self, scaler: Any) -> None:
        reference = weak(scaler)
        if reference is not None and len(self._scalers) < _MOST:
            self._scalers.append(reference)

    def scaler_of(self, root: Any) -> Callable[[], Any] | None:
        """The one whose own factor what a backward begins from was multiplied by, and with nothing done to it since."""
        factor = getattr(getattr(root, "grad_fn", None), "_saved_other", None) if self._scalers else None
        if factor is None:
            return None
        return next((s for s in self._scalers if getattr(s(), "_scale", None) is factor), None)


def scaler_of_step() -> Any:
    """The enabled one whose `step` is on the stack of an optimizer's step; None where it steps by itself."""
    for frame in frames_above(_FRAMES):
        if frame.f_code.co_name == "step" and frame.f_code.co_filename.endswith(_FILES):
            scaler = frame.f_locals.get("self")
            return scaler if getattr(scaler, "_enabled", False) else None
    return None


def stage_of(scaler: Any, optimizer: object) -> str:
    """READY, UNSCALED or STEPPED, as the scaler itself keeps it since its last update."""
    state = scaler._per_optimizer_states.get(id(optimizer))
    return "READY" if state is None else str(state["stage"].name)


def autocast_of(module: Any) -> str:
    """`float16` or `bfloat16` where autocast is on for the device of a module that trains, else empty.

    Only where its parameters have another dtype: autocast does nothing for a model that is of half precision itself.
    """
    if not module.training:
        return ""
    torch = sys.modules["torch"]
    if not torch.is_grad_enabled():
        return ""
    parameter = next((p for p in module.parameters() if p.requires_grad), None)
    if parameter is None or not torch.is_autocast_enabled(parameter.device.type):
        return ""
    dtype = torch.get_autocast_dtype(parameter.device.type)
    return "" if parameter.dtype == dtype else str(dtype).removeprefix("torch.")
