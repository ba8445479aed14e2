"""Detect a DDP or FSDP model in eval mode that builds graphs without a backward.

It looks at the first batches of each pass over a loader, where evaluations begin. Any backward or autograd.grad (frozen
batch norm, saliency) clears the model for that pass. Graphs that are all alive after these batches may still get a
backward, of a summed loss: they have time until the next pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.graphs import Token
from distdbg.worker.user_code import Where, frames_above, users_line

_BATCHES = 3
_PASSES = 1000
_KEY = "distdbg eval-with-grad"


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
        self._graphs: dict[int, Callable[[], Any]] = {}
        self._kept: Where | None = None
        self.listen("pass", self._pass)

    def finish(self) -> None:
        """An evaluation may be the script's last pass, and its outputs may have used up the memory."""
        if self._kept is not None:
            self._report(self._kept)

    def _pass(self, _iterator: object) -> None:
        kept = self._kept
        self._at_rest()
        if kept is not None:
            self._report(kept)
        self._left -= 1
        if self._left < 0:
            self.unsubscribe()
        else:
            self._from, self._graphs = self.context.batches, {}
            self.listen("forward-end", self._forward)
            self.listen("backward", self._backward)

    def _at_rest(self) -> None:
        self._kept = None
        self.unsubscribe("forward-end")
        self.unsubscribe("backward")

    def _backward(self, _frame: object) -> None:
        self._at_rest()

    def _forward(self, module: Any) -> None:
        batch = self.context.batches
        if module.training or batch - self._from > 2 * _BATCHES:
            self._at_rest()
            return
        node = _graph_of(_output())
        if node is not None:
            self._graphs[batch] = _hung_on(node)
        if len(self._graphs) >= _BATCHES:
            where = users_line()
            if all(token() is not None for token in self._graphs.values()):
                self._kept = where
                self.unsubscribe("forward-end")
            else:
                self._at_rest()
                self._report(where)

    def _report(self, where: Where | None) -> None:
        self.report(where, "an evaluation builds graphs", batches=_BATCHES)


def _hung_on(node: Any) -> Callable[[], Any]:
    from _weakref import ref

    token = node.metadata[_KEY] = Token()
    return ref(token)


def _output() -> Any:
    """The return value of the forward of DDP or FSDP1, or of the outermost unit of FSDP2."""
    for frame in frames_above(8):
        if "output" in frame.f_code.co_varnames and frame.f_code.co_name in ("forward", "_post_forward"):
            return frame.f_locals.get("output")
    return None


def _graph_of(output: Any) -> Any:
    if isinstance(output, dict):
        output = tuple(output.values())
    if not isinstance(output, (list, tuple)):
        output = (output,)
    return next((node for one in output[:8] if (node := getattr(one, "grad_fn", None)) is not None), None)
