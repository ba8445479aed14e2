"""Detect that DDP reduces the gradients of each micro-batch, though only the last one before the step needs it.

That is: several backwards from the same line, each after a forward from the same line, no gradient cleared between
them, before one step of the optimizer that has the model; three times in one window. Two losses at two lines, SAM and
closures do not match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.gradients import dense_one, is_filled
from distdbg.worker.models import parameters_of, weak_or_gone
from distdbg.worker.user_code import Where, users_line

_TIMES = 3


class RedundantAllreduce(Guard):
    id = "redundant-allreduce"
    modes = ("off", "warn", "error")
    costs = "about 15 us for each of ten steps in a thousand"
    blind = "FSDP, where gradients that are not reduced cost memory: a script may reduce each micro-batch on purpose"

    def window(self) -> None:
        self._of: dict[int, _ReducedModel] = {}
        self._owned: dict[tuple[int, int], bool] = {}
        self._forward: tuple[_ReducedModel, Where | None] | None = None
        self.listen_in_window(forward=self._begins, backward=self._backward, optimizer=self._steps)

    def window_ends(self) -> None:
        self._of, self._owned, self._forward = {}, {}, None

    def _begins(self, module: Any) -> None:
        self._forward = None
        if not module.training or getattr(module, "require_backward_grad_sync", None) is not True:
            return
        if module.process_group.size() < 2:
            return
        model = self._of.setdefault(id(module), _ReducedModel(module))
        self._forward = model, users_line()

    def _backward(self, _frame: object) -> None:
        if self._forward is None:
            return  # another kind of autograd, or one within another
        (model, line), self._forward = self._forward, None
        if model.places and _cleared(model.parameter()):
            model.places.clear()
        model.places.append((line, users_line()))

    def _steps(self, optimizer: Any) -> None:
        for key, model in self._of.items():
            if not model.places or not self._owns(optimizer, key, model):
                continue
            places, model.places = model.places, []
            same = len(places) > 1 and all(place == places[0] for place in places)
            model.times = model.times + 1 if same else 0
            if model.times >= _TIMES:
                self.report(places[0][1], "each micro-batch is reduced", reduced=len(places))

    def _owns(self, optimizer: Any, key: int, model: _ReducedModel) -> bool:
        """Whether a parameter of the model is this optimizer's."""
        pair = id(optimizer), key
        if pair not in self._owned:
            parameter = model.parameter()
            self._owned[pair] = any(one is parameter for one in parameters_of(optimizer))
        return self._owned[pair]


class _ReducedModel:
    def __init__(self, module: Any) -> None:
        self.parameter: Callable[[], Any] = weak_or_gone(dense_one(module.parameters()))
        self.places: list[tuple[Where | None, Where | None]] = []
        self.times = 0


def _cleared(parameter: Any) -> bool:
    gradient = None if parameter is None else parameter.grad
    return gradient is None or is_filled(gradient) is False
