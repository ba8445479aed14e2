"""A DDP or FSDP model in evaluation mode builds graphs that nobody runs backward through.

Looked at are the first batches of each pass over a loader, where evaluations begin. A backward or an autograd.grad of
whatever kind (frozen batch norm, saliency) ends the suspicion for that pass.
"""

from __future__ import annotations

import sys

from distdbg.worker.guards._base import Guard, users_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BATCHES = 3
_PASSES = 1000


class EvalWithGrad(Guard):
    id = "eval-with-grad"
    modes = ("off", "warn", "error")
    costs = "about 5 us for each of the first three steps of a pass over a loader"
    blind = (
        "models called without DDP or FSDP, or without their wrapper; evaluations of under 3 batches, or without a "
        "DataLoader"
    )

    def begin(self) -> None:
        self._left = _PASSES
        self.listen("pass", self._pass)

    def _pass(self, _iterator: object) -> None:
        self._at_rest()
        self._left -= 1
        if self._left < 0:
            self.deaf()
        else:
            self._from, self._graphs = self.desk.batches, set[int]()
            self.listen("forward-end", self._forward)
            self.listen("backward", self._backward)

    def _at_rest(self) -> None:
        self.deaf("forward-end")
        self.deaf("backward")

    def _backward(self, _frame: object) -> None:
        self._at_rest()

    def _forward(self, module: Any) -> None:  # noqa: ANN401
        batch = self.desk.batches
        if module.training or batch - self._from > 2 * _BATCHES:
            self._at_rest()
            return
        if _has_graph(_output()):
            self._graphs.add(batch)
        if len(self._graphs) >= _BATCHES:
            self._at_rest()
            self.say(users_line(), "an evaluation builds graphs", batches=_BATCHES)


def _output() -> Any:  # noqa: ANN401
    """What the forward of DDP or FSDP1 is about to give back, or the outermost unit of FSDP2."""
    frame = sys._getframe(1)
    for _ in range(8):
        if "output" in frame.f_code.co_varnames and frame.f_code.co_name in ("forward", "_post_forward"):
            return frame.f_locals.get("output")
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _has_graph(output: Any) -> bool:  # noqa: ANN401
    if isinstance(output, dict):
        output = tuple(output.values())
    if not isinstance(output, (list, tuple)):
        output = (output,)
    return any(getattr(one, "grad_fn", None) is not None for one in output[:8])
