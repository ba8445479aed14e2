"""Look at the losses of a few steps."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.late_figures import LateFigures
from distdbg.worker.user_code import Where, users_line

#: Losses of a window that are kept; with fewer than _FEWEST nothing is said.
_MOST, _FEWEST = 64, 9
_AT_THE_END_S = 0.2


class LossNeverChanges(Guard):
    """Detect a loss that is the same number, to its last bit, at every backward of every window.

    Batches differ, and weights change: the loss then depends on neither. It is told after the second window, or at the
    end of the script. A loss of half precision has too few digits to tell."""

    id = "loss-never-changes"
    most = 1
    costs = "about 10 us for each of the steps 2 to 11; more steps are only looked at while the loss is the same"
    blind = "losses from several lines; half precision; backwards through `autograd.grad`, or inside a CUDA graph"

    def begin(self) -> None:
        self._late = LateFigures()
        self._roots: list[Any] = []
        self._where: Where | None = None
        self._value: float | None = None
        self._times = 0

    def window(self) -> None:
        self._judge(last=False)
        self._roots.clear()
        self.listen_in_window(backward=self._backward)

    def _backward(self, frame: FrameType) -> None:
        torch = sys.modules["torch"]
        root = next((r for r in roots_of(frame) if isinstance(r, torch.Tensor)), None)
        where = users_line()
        wide = root is not None and root.numel() == 1 and root.dtype in (torch.float32, torch.float64)
        if root is None or not wide or where is None or frame.f_code.co_name == "grad":
            return
        if (self._where or where) != where:
            self._end()
        elif len(self._roots) < _MOST:
            self._where = where
            self._roots.append(root.detach())

    def window_ends(self) -> None:
        torch = sys.modules["torch"]
        roots, self._roots = self._roots, []
        if len(roots) < _FEWEST or roots[0].device.type not in ("cpu", "cuda"):
            self._end()
        elif roots[0].device.type == "cpu" or not torch.cuda.is_current_stream_capturing():
            self._late.send(torch.stack([root.reshape(()).double() for root in roots]), self.windows)
            self._judge(last=False)

    def finish(self) -> None:
        self._judge(last=True)
        if self._times and not script_failed():
            self._tell()

    def _judge(self, *, last: bool) -> None:
        arrived = self._late.wait(_AT_THE_END_S) if last else self._late.take()
        if arrived is None:
            return
        values, _ = arrived
        self._value = values[0] if self._value is None else self._value
        if any(value != self._value for value in values):  # of NaN, too, which is another guard's
            self._end()
            return
        self._times += len(values)
        if self.windows > 1:
            self._tell()

    def _tell(self) -> None:
        if self._where is not None:
            self.report(self._where, value=self._value, times=self._times)

    def _end(self) -> None:
        """From here on no window costs anything."""
        self.most_windows, self._times = 0, 0
        self._roots.clear()
        self.unsubscribe()
