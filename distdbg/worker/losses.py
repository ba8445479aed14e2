"""Collect the losses of a training by the line that began their backward, and read them once the step is over.

A loss is a scalar that `backward()` was called on; `autograd.grad` has none. It is kept as one detached number until
then, so no graph lives longer. The losses of one line within a step are averaged: gradient accumulation.
"""

from __future__ import annotations

import sys
from math import isfinite
from types import FrameType
from typing import Any

from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.user_code import users_line, variables

#: A script with more lines that begin a backward has no loss that could be followed.
_MOST_LINES = 8
#: Backwards without a step between them: what is kept of them ends somewhere.
_MOST_OPEN = 1024
#: A scaler is near the call: in a frame of this distance, or in an attribute of its `self`.
_FRAMES = 12


class Losses:
    """`add` at each backward, `read` after a step. `series` is {line: [[step, loss], …]}, text for values that are
    not finite."""

    def __init__(self) -> None:
        self._open: list[tuple[str, Any, Any]] = []
        self.series: dict[str, list[list[object]]] = {}
        self.not_scalar = 0

    def add(self, frame: FrameType) -> None:
        if frame.f_code.co_name == "grad":
            return
        root = next((r for r in roots_of(frame) if isinstance(r, sys.modules["torch"].Tensor)), None)
        if root is None or root.numel() != 1 or not root.is_floating_point():
            self.not_scalar += 1
            return
        where = users_line()
        if len(self._open) >= _MOST_OPEN:
            self._open.clear()
        line = f"{where[0]}:{where[1]}" if where else "?"
        if line in self.series or len(self.series) < _MOST_LINES:
            self.series.setdefault(line, [])
            self._open.append((line, root.detach(), _scale(frame)))

    def read(self, step: int) -> None:
        """Waits for a device, as printing the loss would."""
        values: dict[str, list[float]] = {}
        for line, root, scale in self._open:
            values.setdefault(line, []).append(float(root) / (float(scale) if scale is not None else 1.0))
        for line, found in values.items():
            mean = sum(found) / len(found)
            self.series[line].append([step, mean if isfinite(mean) else str(mean)])
        self._open.clear()

    def forget(self) -> None:
        """A step whose loss is not needed."""
        self._open.clear()


def _scale(frame: FrameType | None) -> Any:
    """The factor of an enabled GradScaler: it changes by itself, and would look like a loss that does."""
    for _ in range(_FRAMES):
        frame = frame.f_back if frame is not None else None
        if frame is None:
            return None
        around = variables(frame)
        for found in (*around.values(), *getattr(around.get("self"), "__dict__", {}).values()):
            if type(found).__name__ in ("GradScaler", "ShardedGradScaler") and getattr(found, "_enabled", False):
                return getattr(found, "_scale", None)
    return None
