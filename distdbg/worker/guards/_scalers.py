"""The GradScaler through which an optimizer steps, found on the stack of that step.

Works for all that torch has (torch.amp, torch.cuda.amp, FSDP's own) and for whoever calls them (Accelerate, Lightning).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_FILES = ("grad_scaler.py", "sharded_grad_scaler.py")
_FRAMES = 16


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


def is_scaled_by(scaler: Any, root: Any) -> bool:  # noqa: ANN401
    """Whether what a backward begins from is a product with this scaler's own factor."""
    factor, node = getattr(scaler, "_scale", None), getattr(root, "grad_fn", None)
    return factor is not None and getattr(node, "_saved_other", None) is factor
