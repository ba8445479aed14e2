"""The GradScaler through which an optimizer steps, found on the stack of that step.

Works for all that torch has (torch.amp, torch.cuda.amp, FSDP's own) and for whoever calls them (Accelerate, Lightning).
"""

from __future__ import annotations

import sys

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.passes import weak

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_FILES = ("grad_scaler.py", "sharded_grad_scaler.py")
_FRAMES = 16
_MOST = 16


class ScalerGuard(Guard):
    """Knows the scalers that the script has made, without keeping them alive."""

    def begin(self) -> None:
        self._scalers: list[Callable[[], Any]] = []
        self.listen("scaler", self._made)

    def _made(self, scaler: Any) -> None:  # noqa: ANN401
        reference = weak(scaler)
        if reference is not None and len(self._scalers) < _MOST:
            self._scalers.append(reference)

    def scaler_of(self, root: Any) -> Callable[[], Any] | None:  # noqa: ANN401
        """The one whose own factor what a backward begins from was multiplied by, and with nothing done to it since."""
        factor = getattr(getattr(root, "grad_fn", None), "_saved_other", None) if self._scalers else None
        if factor is None:
            return None
        return next((s for s in self._scalers if getattr(s(), "_scale", None) is factor), None)


def scaler_of_step() -> Any:  # noqa: ANN401
    """The enabled one whose `step` is on the stack of an optimizer's step; None where it steps by itself."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name == "step" and frame.f_code.co_filename.endswith(_FILES):
            scaler = frame.f_locals.get("self")
            return scaler if getattr(scaler, "_enabled", False) else None
        frame = frame.f_back
    return None


def stage_of(scaler: Any, optimizer: object) -> str:  # noqa: ANN401
    """READY, UNSCALED or STEPPED, as the scaler itself keeps it since its last update."""
    state = scaler._per_optimizer_states.get(id(optimizer))
    return "READY" if state is None else str(state["stage"].name)
