"""Detect an autocast region to one 16-bit dtype inside a region to the other, three times at one line.

Only regions of the script count, with gradients on: libraries have their own reasons, `enabled=False` computes in
float32 on purpose, and a frozen encoder under no_grad may have its own dtype.
"""

from __future__ import annotations

import sys
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.user_code import Where, belongs_to_user, frames_above

_TIMES = 3
_MOST_LINES = 64
_FRAMES = 12
#: Functions between a region's `__enter__` and the script.
_BETWEEN = ("__enter__", "enter_context")


class AutocastDtypesMixed(Guard):
    id = "autocast-dtypes-mixed"
    modes = ("off", "warn", "error")
    costs = "about 1 us for each autocast region that is entered in ten steps of a thousand"
    blind = "regions that a library enters for the script; compiled regions; types that a script casts to by hand"

    def window(self) -> None:
        self._times: dict[str, int] = {}
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
        times = self._times.get(line, 0) + 1
        if times <= _TIMES and len(self._times) < _MOST_LINES:
            self._times[line] = times
        if times == _TIMES:
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
