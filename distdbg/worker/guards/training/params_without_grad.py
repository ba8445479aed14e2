"""Detect parameters in an optimizer that require a gradient and have never had one.

An optimizer with a state for each parameter (Adam, SGD with momentum) makes it with the first gradient: one look covers
all steps so far. Rarely used experts and branches have a state by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import is_fsdp1, parameters_of, weak
from distdbg.worker.user_code import Where, users_line

_MOST_NAMES = 5
_MOST_OPTIMIZERS = 8
#: Passes over loaders that are followed by a look, where parameters are missing.
_PASSES = 100


class ParamsWithoutGrad(Guard):
    id = "params-without-grad"
    modes = ("off", "warn")
    most_windows = 3
    costs = (
        "a walk over all parameters at steps 101 and 1001: about 0.5 ms for 1,000 of them; where some had no gradient, "
        "after passes over a loader, too"
    )
    blind = (
        "models without DDP or FSDP2; optimizers without a state for each parameter (SGD without momentum), or that "
        "make it before the first gradient (Adagrad); runs of fewer than 101 steps"
    )

    def begin(self) -> None:
        self._looks: dict[int, _GradientLook] = {}
        self._passes = _PASSES
        self.listen("data-end", self._data_ends)

    def window(self) -> None:
        self.listen_in_window(optimizer=self._steps)

    def window_ends(self) -> None:
        if self.windows == self.most_windows:
            self.unsubscribe()
            self._judge()

    def finish(self) -> None:
        """A look older than half of the run proves nothing about the rest."""
        self._look_again()
        for look in self._looks.values():
            if 2 * look.steps < self.context.steps:
                look.names = {}
        self._judge()

    def _data_ends(self, _iterator: object) -> None:
        """An optimizer of a function does not live until the end."""
        self._passes -= 1
        if self._passes < 0:
            self.unsubscribe("data-end")
        else:
            self._look_again()

    def _look_again(self) -> None:
        for look in self._looks.values():
            optimizer = look.of()
            if look.names and optimizer is not None:
                look.take_again(optimizer, self.context.steps)

    def _steps(self, optimizer: Any) -> None:
        """Only optimizers that stepped in the first window: a later one is too young."""
        look, reference = self._looks.get(id(optimizer)), weak(optimizer)
        if self.windows == 1:
            if look is None and reference is not None and len(self._looks) < _MOST_OPTIMIZERS:
                self._looks[id(optimizer)] = _GradientLook(reference)
            return
        model = self.context.model()
        if look is None or look.of() is not optimizer or look.window == self.windows:
            return
        if model is None or is_fsdp1(model):
            return
        look.window, look.where = self.windows, users_line()
        look.take(optimizer, model, self.context.steps)

    def _judge(self) -> None:
        for look in self._looks.values():
            if look.names:
                self.report(look.where, names=list(look.names.values())[:_MOST_NAMES], count=len(look.names),
                         parameters=look.parameters, steps=look.steps)  # fmt: skip
        self._looks = {}


class _GradientLook:
    """One optimizer: names of parameters without a gradient in `steps` steps, by id: the optimizer keeps them alive."""

    def __init__(self, of: Callable[[], Any]) -> None:
        self.of = of
        self.names: dict[int, str] = {}
        self.where: Where | None = None
        self.window = self.steps = self.parameters = 0

    def take(self, optimizer: Any, model: Any, steps: int) -> None:
        without = self._without(optimizer, steps)
        self.names = {id(p): name for name, p in model.named_parameters() if id(p) in without}

    def take_again(self, optimizer: Any, steps: int) -> None:
        """Without the model: after a forward without a backward FSDP2 has replaced its parameters."""
        without = self._without(optimizer, steps)
        self.names = {own: name for own, name in self.names.items() if own in without}

    def _without(self, optimizer: Any, steps: int) -> set[int]:
        """Empty where the optimizer's state does not show which parameters had a gradient."""
        wanted = [p for p in parameters_of(optimizer) if p.requires_grad and p.numel()]
        state = optimizer.state
        stateless = [p for p in wanted if not state.get(p)]
        without = {id(p) for p in stateless if p.grad is None}
        self.steps, self.parameters = steps, len(wanted)
        return without if 2 * len(without) < len(wanted) and len(stateless) < len(wanted) else set()
