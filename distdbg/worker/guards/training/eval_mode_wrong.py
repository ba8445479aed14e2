"""Detect a model that is trained on in eval mode after an evaluation, or evaluated in train mode again and again.

An evaluation is a forward without autograd. Only a whole model in eval mode counts, with dropout or batch norm that
this switches off, and whose parameters an optimizer steps: frozen batch norm is a part of a model, and no optimizer
steps a teacher. shared/evaluations.py detects the second mistake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.evaluations import DELIBERATE, MODE_CHOSEN, Evaluations
from distdbg.worker.models import inner_of, parameters_of, weak
from distdbg.worker.user_code import Where, mentioned, users_line

_TIMES = 3
#: Forwards that are observed after a pass began or ended, passes that are observed, and models.
_FORWARDS = 16
_PASSES = 500
_MOST = 8


class EvalModeWrong(Guard):
    id = "eval-mode-wrong"
    modes = ("off", "warn", "error")
    costs = "about 1 us for each of the first 16 steps of a pass over a loader"
    blind = (
        "models called without their DDP or FSDP wrapper; evaluations without no_grad, or without a DataLoader; "
        "dropout as a function; evaluations in train mode, where a model was ever called in eval mode, the script "
        "names eval() anywhere, several optimizers step, or the data was trained on"
    )

    def begin(self) -> None:
        self._of: dict[int, _EvaluatedModel] = {}
        self._left = _PASSES
        self._suspect: _EvaluatedModel | None = None
        self._evaluations = Evaluations(self.context)
        self.listen("pass", self._pass_begins)
        self.listen("data-end", self._pass_ends)

    def _pass_begins(self, iterator: Any) -> None:
        self._evaluations.begins(iterator)
        self._look_anew()

    def _pass_ends(self, iterator: Any) -> None:
        """After an evaluation in the middle of an epoch an older pass continues."""
        evaluations = self._evaluations
        if evaluations.ends(iterator):
            self.listen("optimizer", self._counts_optimizers)
        module = evaluations.model() if evaluations.repeated else None
        if module is not None:
            evaluations.off = True
            kinds = _kinds(module, training=True)
            if kinds and not mentioned(DELIBERATE):
                self.report(
                    evaluations.where, "an evaluation runs in train mode", active=kinds, times=evaluations.rounds
                )
        self._look_anew()

    def _counts_optimizers(self, optimizer: object) -> None:
        if self._evaluations.steps_with(optimizer):
            self.unsubscribe("optimizer")

    def _look_anew(self) -> None:
        self.unsubscribe("forward")
        self._left -= 1
        if self._left < 0:
            self.unsubscribe()
            return
        self._forwards = _FORWARDS
        self.listen("forward", self._forward)

    def _forward(self, module: Any) -> None:
        self._forwards -= 1
        if self._forwards <= 0:
            self.unsubscribe("forward")
        one = self._of.get(id(module))
        if one is None or one.of() is not module:
            reference = weak(module)
            if reference is None or len(self._of) >= _MOST:
                return
            one = self._of[id(module)] = _EvaluatedModel(reference)
        torch, inner = sys.modules.get("torch"), inner_of(module)
        autograd = torch is None or torch.is_grad_enabled()
        one.update(inner.training, autograd, self.context.steps)
        self._evaluations.forward(one.of, inner.training, autograd, trained=one.trainable > 0)
        if one.wrong == _TIMES:
            one.where, self._suspect = users_line(), one
            self.unsubscribe("forward")
            self.unsubscribe("optimizer")
            self.listen("optimizer", self._steps)

    def _steps(self, optimizer: Any) -> None:
        """The first step after a suspicion decides."""
        self.unsubscribe("optimizer")
        one, self._suspect = self._suspect, None
        module = None if one is None else one.of()
        if one is None or module is None:
            return
        held = set(map(id, parameters_of(optimizer)))
        wanted = [p for p in module.parameters() if p.requires_grad]
        kinds = _kinds(module, training=False)
        complete = len(wanted) >= one.trainable and all(id(p) in held for p in wanted)
        if kinds and complete and not mentioned(MODE_CHOSEN):
            self.report(one.where, "training continues in eval mode", silenced=kinds, times=one.wrong)


class _EvaluatedModel:
    """The states of a model: trained, evaluated, trained in eval mode; a forward in train mode resets them."""

    def __init__(self, of: Callable[[], Any]) -> None:
        self.of = of
        self.where: Where | None = None
        self.evaluated = False
        self.trainable = self.wrong = 0
        self._steps = -1

    def update(self, training: bool, autograd: bool, steps: int) -> None:
        stepped, self._steps = 0 <= self._steps < steps, steps if autograd else -1
        if training:
            self.evaluated, self.wrong = False, 0
            if autograd and stepped and not self.trainable:
                self.trainable = sum(1 for p in self.of().parameters() if p.requires_grad)
        elif not autograd:
            self.evaluated = self.trainable > 0
        elif self.evaluated and stepped:
            self.wrong += 1


def _kinds(module: Any, *, training: bool) -> list[str]:
    """The kinds of its dropouts and batch norms, where all of them are in this mode. Frozen batch norms have no mode,
    and are of another class than torch's."""
    norm = sys.modules["torch"].nn.modules.batchnorm._NormBase
    alike = [
        m
        for m in module.modules()
        if (isinstance(m, norm) and m.track_running_stats) or ("Dropout" in type(m).__name__ and getattr(m, "p", 0) > 0)
    ]
    return [] if any(m.training is not training for m in alike) else sorted({type(m).__name__ for m in alike})
