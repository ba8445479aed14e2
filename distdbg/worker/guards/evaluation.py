"""Detect evaluations in the wrong mode or with gradients."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.backward import token_on
from distdbg.worker.guards.shared.base import IN_A_ROW, Guard, GuardContext
from distdbg.worker.models import inner_of, parameters_of, weak, weak_or_gone
from distdbg.worker.user_code import Where, frames_above, mentioned, users_line

#: Forwards that are observed after a pass began or ended, passes that are observed, and models.
_FORWARDS = 16
_PASSES = 500
_MOST = 8


class EvalModeWrong(Guard):
    """Detect a model that is trained on in eval mode after an evaluation, or evaluated in train mode again and again.

    An evaluation is a forward without autograd. Only a whole model in eval mode counts, with dropout or batch norm that
    this switches off, and whose parameters an optimizer steps: frozen batch norm is a part of a model, and no optimizer
    steps a teacher. `Evaluations` detects the second mistake."""

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
        module = evaluations.model() if not evaluations.off and evaluations.rounds >= _ROUNDS else None
        if module is not None:
            evaluations.off = True
            kinds = _kinds(module, training=True)
            if kinds and not mentioned(_DELIBERATE):
                message = "an evaluation runs in train mode"
                self.report(evaluations.where, message, active=kinds, times=evaluations.rounds)
        self._look_anew()

    def _counts_optimizers(self, optimizer: object) -> None:
        if self._evaluations.steps_with(optimizer):
            self.unsubscribe("optimizer")

    def _look_anew(self) -> None:
        if not self.passes_end(_PASSES):
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
        one.update(inner.training, autograd, self.page.steps())
        self._evaluations.forward(one.of, inner.training, autograd, trained=one.trainable > 0)
        if one.wrong == IN_A_ROW:
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
        if kinds and complete and not mentioned(_MODE_CHOSEN):
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


#: Words of a script that has thought of it.
_DELIBERATE = re.compile(
    r"\.eval\(|\.train\(\s*(mode\s*=\s*)?(False|not\b)|\.training\b|monte.?carlo|mc.?dropout|update_bn|running_(mean|var)",
    re.IGNORECASE,
)
#: Words of one that decides on the mode anew: `train(epoch < 2)`, `train(not frozen)`, `train(was_training)`.
_MODE_CHOSEN = re.compile(
    r"(?<!super\(\))\.train\(\s*(mode\s*=\s*)?(not\b|[^(),]*([<>]|[!=]=)|[\w.]*(mode|training|is_train)\s*\))"
)
_FEWEST_BATCHES = 3
_ROUNDS = 2
_MOST_DATA = 64
#: Steps whose optimizer is checked after the first such evaluation: a GAN's alternate.
_STEPS = 16


class Evaluations:
    """Detect evaluations of the trained model in train mode: `rounds` of them, the newest at `where`, of `model`; `off`
    once one may be intended.

    Such an evaluation is a complete pass over a loader, with one forward a batch, each without autograd and in train
    mode, without a backward or a step, over data that was never trained on; and a second one after more training. This
    leaves out what is right and looks the same: Monte Carlo dropout (it repeats a batch or the data), new statistics of
    batch norm (from data that is trained on), a generator that is called between steps, cached gradients (a forward of
    each batch that is trained on). A script that ever calls the model in eval mode knows about it."""

    def __init__(self, context: GuardContext) -> None:
        self._context = context
        self.off = False
        self.rounds = 0
        self.where: Where | None = None
        self.model: Callable[[], Any] = lambda: None
        self._now: _EvaluationPass | None = None
        self._trained_on: list[Callable[[], Any]] = []
        #: steps at the end of the last round, and the data that it went over
        self._steps, self._over = -1, set[int]()
        self._optimizers, self._left = set[int](), _STEPS

    def begins(self, iterator: Any) -> None:
        self._close()
        self._now = None if self.off else _EvaluationPass(iterator, self._context.counts())

    def ends(self, iterator: Any) -> bool:
        """Whether this was the first such evaluation."""
        now, before = self._now, self.rounds
        self._close()
        if now is None or self.off or now.of() is not iterator:
            return False
        batches, backwards, steps = (a - b for a, b in zip(self._context.counts(), now.since, strict=True))
        data = now.data() if now.data is not None else None
        if not now.fits or backwards or steps or min(batches, now.forwards) < _FEWEST_BATCHES or data is None:
            return False
        trained_on = {id(one()) for one in self._trained_on}  # never by ==, which of tensors is a tensor
        if {id(data), id(getattr(data, "dataset", data))} & trained_on:
            return False
        if self._context.page.steps() > self._steps:
            self.rounds, self._steps, self._over = self.rounds + 1, self._context.page.steps(), set()
        self.off = id(data) in self._over  # the same data again: the script needs several answers
        self._over.add(id(data))
        self.where, self.model = now.where, now.model
        return before == 0 and self.rounds == 1

    def forward(self, model: Callable[[], Any], training: bool, autograd: bool, *, trained: bool) -> None:
        """`trained`: the model has been seen to train before."""
        if not training:
            self.off = True
        if self._now is not None and not self.off:
            self._now.forward(model, training and trained and not autograd, self._context.page.batches())

    def steps_with(self, optimizer: object) -> bool:
        """Whether enough steps were checked."""
        self._optimizers.add(id(optimizer))
        self._left -= 1
        self.off = self.off or len(self._optimizers) > 1
        return self._left <= 0

    def _close(self) -> None:
        """Data counts as training data where steps were made before the next pass began, or this one ended."""
        now, self._now = self._now, None
        if now is None or now.data is None or self._context.page.steps() <= now.since[2]:
            return
        data = now.data()
        if data is not None and not any(one() is data for one in self._trained_on):
            self._trained_on = [*self._trained_on[-_MOST_DATA:], now.data]


class _EvaluationPass:
    """`fits` while there was one forward a batch, of one model, each as an evaluation in train mode has them."""

    def __init__(self, iterator: Any, since: tuple[int, int, int]) -> None:
        self.of = weak_or_gone(iterator)
        self.data = weak(getattr(iterator, "_dataset", None))
        self.since = since
        self.forwards, self.fits = 0, True
        self.where: Where | None = None
        self.model: Callable[[], Any] = lambda: None

    def forward(self, model: Callable[[], Any], as_meant: bool, batches: int) -> None:
        self.forwards += 1
        if self.forwards == 1:
            self.model = model
            self.where = users_line() if as_meant else None
        self.fits = self.fits and as_meant and self.model is model and batches - self.since[0] == self.forwards


_GRAPHS = 3
_GRAPH_PASSES = 1000
_KEY = "distdbg eval-with-grad"


class EvalWithGrad(Guard):
    """Detect a DDP or FSDP model in eval mode that builds graphs without a backward.

    It looks at the first batches of each pass over a loader, where evaluations begin. Any backward or autograd.grad
    (frozen batch norm, saliency) clears the model for that pass. Graphs that are all alive after these batches may
    still get a backward, of a summed loss: they have time until the next pass."""

    id = "eval-with-grad"
    modes = ("off", "warn", "error")
    costs = "about 5 us for each of the first three steps of a pass over a loader"
    blind = (
        "models called without DDP or FSDP, or without their wrapper; evaluations of under 3 batches, or without a "
        "DataLoader"
    )

    def begin(self) -> None:
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
        if not self.passes_end(_GRAPH_PASSES):
            self._from, self._graphs = self.page.batches(), {}
            self.listen("forward", self._begins)
            self.listen("backward", self._backward)

    def _at_rest(self) -> None:
        self._kept = None
        for event in ("forward", "forward-end", "backward"):
            self.unsubscribe(event)

    def _backward(self, _frame: object) -> None:
        self._at_rest()

    def _begins(self, module: Any) -> None:
        """The hook of "forward-end" costs each step 3 us, once it is installed: only where a model is in eval mode."""
        if module.training or self.page.batches() - self._from > 2 * _GRAPHS:
            self._at_rest()
        else:
            self.listen("forward-end", self._ends)

    def _ends(self, _module: object) -> None:
        batch, output = self.page.batches(), _output()
        if isinstance(output, dict):
            output = tuple(output.values())
        parts = output[:8] if isinstance(output, (list, tuple)) else (output,)
        node = next((node for one in parts if (node := getattr(one, "grad_fn", None)) is not None), None)
        if node is not None:
            self._graphs[batch] = token_on(node, _KEY)
        if len(self._graphs) >= _GRAPHS:
            where = users_line()
            if all(token() is not None for token in self._graphs.values()):
                self._kept = where
                self.unsubscribe("forward")
                self.unsubscribe("forward-end")
            else:
                self._at_rest()
                self._report(where)

    def _report(self, where: Where | None) -> None:
        self.report(where, "an evaluation builds graphs", batches=_GRAPHS)


def _output() -> Any:
    """The return value of the forward of DDP or FSDP1, or of the outermost unit of FSDP2."""
    for frame in frames_above(8):
        if "output" in frame.f_code.co_varnames and frame.f_code.co_name in ("forward", "_post_forward"):
            return frame.f_locals.get("output")
    return None
