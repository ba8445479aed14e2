"""Detect gradients that are not cleared, not divided or not used, and graphs that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.backward import (
    CHANGES_GRADIENTS,
    LOSSES,
    Probe,
    begins_with_ones,
    chain_of,
    dense_one,
    is_filled,
    kind_of,
    probe_of,
    token_on,
)
from distdbg.worker.guards.shared.base import IN_A_ROW, Guard
from distdbg.worker.guards.shared.scalers import ScalerGuard
from distdbg.worker.guards.shared.units import holds_unreduced
from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.models import parameters_of, weak
from distdbg.worker.user_code import Where, mentioned, users_line

_STEPS = 3
_MOST_PASSES = 1000


class LeftoverStepsDropped(Guard):
    """Detect micro-batches at the end of an epoch that are accumulated and never stepped.

    It counts: so many backwards made each step; the pass ended with fewer after its last step; and the next step, in
    another pass, came after a full number of backwards again. A script that steps after the loop, at the last batch, or
    counts over epochs drops none."""

    id = "leftover-steps-dropped"
    costs = "about 10 us for each of the first three steps of a pass over a loader"
    blind = "IterableDataset, whose end is unknown; the last epoch; passes that another loader interrupts"

    def begin(self) -> None:
        self._now: _AccumulationPass | None = None
        self._over: tuple[_AccumulationPass, int, int] | None = None
        self.listen("pass", self._begins)
        self.listen("data-end", self._ends)

    def _begins(self, iterator: Any) -> None:
        if self.passes_end(_MOST_PASSES):
            return
        reference = weak(iterator)
        self._now = None if reference is None else _AccumulationPass(reference, users_line(), self.context.counts())
        self.listen("optimizer", self._steps)

    def _steps(self, _optimizer: object) -> None:
        backwards = self.page.backwards()
        if self._over is not None:
            (before, left, at_end), self._over = self._over, None
            if backwards - at_end == before.each:
                self.report(before.where, left=left, each=before.each)
        if self._now is None or self._now.steps_at(backwards) >= _STEPS:
            self.unsubscribe("optimizer")

    def _ends(self, iterator: Any) -> None:
        now, self._now = self._now, None
        if now is None or now.of() is not iterator:
            return
        batches, backwards, steps = (a - b for a, b in zip(self.context.counts(), now.since, strict=True))
        if now.each > 1 and batches == backwards and backwards // now.each == steps and backwards % now.each:
            self._over = now, backwards % now.each, self.page.backwards()
            self.listen("optimizer", self._steps)


class _AccumulationPass:
    """`each` is how many backwards make a step, 0 where they differ."""

    def __init__(self, of: Callable[[], Any], where: Where | None, since: tuple[int, int, int]) -> None:
        self.of, self.where, self.since = of, where, since
        self.each, self._last, self._steps = 0, since[1], 0

    def steps_at(self, backwards: int) -> int:
        number, self._last = backwards - self._last, backwards
        self.each = number if self._steps == 0 or number == self.each else 0
        self._steps += 1
        return self._steps


_MEAN = 1  # torch.nn._reduction


class LossNotDivided(ScalerGuard):
    """Detect accumulated micro-batches whose losses are means: the gradients are too large by their number.

    That is: several backwards from one line, one for each batch of one loader, no gradient cleared between them, before
    one step of the optimizer; each begins from a mean that nothing changed; three times in one window. Two losses of
    one batch are no micro-batches. A script that divides gradients itself is left alone."""

    id = "loss-not-divided"
    costs = "about 25 us for each of ten steps in a thousand"
    blind = (
        "losses whose graph does not show a mean; learning rates that compensate; data that comes from no DataLoader"
    )

    def window(self) -> None:
        self._begin_step()
        self._probe: Callable[[], Any] | None = None
        self.listen_in_window(batch=self._batch, backward=self._backward, optimizer=self._steps)

    def _begin_step(self) -> None:
        self._loaders: set[int] = set()
        self._batches = 0
        self._places: list[tuple[Where | None, bool]] = []

    def _batch(self, iterator: object) -> None:
        self._batches += 1
        self._loaders.add(id(iterator))

    def _backward(self, frame: FrameType) -> None:
        root = next(iter(roots_of(frame)), None)
        if root is None:
            return
        if self._places and self._is_cleared():
            self._places.clear()
        self._places.append((users_line(), begins_with_ones(frame) and self._is_mean(root)))

    def _is_mean(self, root: Any) -> bool:
        nodes = list(chain_of(root))
        if self.scaler_of(root) is not None:
            nodes = nodes[1:]
        if not nodes:
            return False
        kinds = [kind_of(node) for node in nodes]
        if kinds[0] == "Mean":  # its input may have been divided
            return not {"Div", "Mul"} & set(kinds) and not any(hasattr(node, "_forward_cls") for node in nodes)
        return kinds[0] in LOSSES and getattr(nodes[0], "_saved_reduction", None) == _MEAN

    def _is_cleared(self) -> bool:
        parameter = None if self._probe is None else self._probe()
        gradient = None if parameter is None else parameter.grad
        if gradient is None:
            return not holds_unreduced(self.context.model())
        return is_filled(gradient) is False

    def _steps(self, optimizer: Any) -> None:
        places, batches, loaders = self._places, self._batches, len(self._loaders)
        self._begin_step()
        if self._probe is None or self._probe() is None:
            self._probe = weak(dense_one(p for p in parameters_of(optimizer) if p.grad is not None))
            return
        same = len(places) > 1 and all(place == places[0] for place in places)
        added_up = same and places[0][1] and batches == len(places) and loaders == 1
        if self.in_a_row(added_up) == IN_A_ROW and not mentioned(CHANGES_GRADIENTS):
            self.report(places[0][0], losses=len(places), optimizer=type(optimizer).__name__)


class MissingZeroGrad(Guard):
    """Detect gradients of the last step that the next backward adds to, and that the optimizer steps on.

    That is: after a step the gradient is not cleared before any backward, and was added to when the same optimizer
    steps again; three times in one window. Accumulation clears after the step; a GAN clears before its discriminator's
    backward. autograd.grad adds nothing, and a parameter outside the wrapped models may be a copy with a gradient
    written by hand."""

    id = "missing-zero-grad"
    modes = ("off", "warn", "error")
    costs = "about 15 us for each of ten steps in a thousand"
    blind = (
        "optimizers that call a closure; off the CPU, several backwards between two steps of an optimizer; FSDP, where "
        "its gradients show no version; beside a wrapped model, parameters that are not its own"
    )

    def begin(self) -> None:
        self._models: dict[int, Callable[[], Any] | None] = {}

    def window(self) -> None:
        self._probes: dict[int, Probe | None] = {}
        self.listen_in_window(forward=self._forward, step=self._stepped, backward=self._backward, optimizer=self._steps)

    def _forward(self, module: Any) -> None:
        self._models[id(module)] = weak(module)

    def _stepped(self, optimizer: Any) -> None:
        self._probes[id(optimizer)] = probe_of(parameters_of(optimizer))

    def _backward(self, frame: FrameType) -> None:
        for probe in self._probes.values():
            if probe is not None and frame.f_code.co_name != "grad":
                probe.backward_begins()

    def _steps(self, optimizer: Any) -> None:
        probe = self._probes.get(id(optimizer))
        if probe is None:
            return
        gradient = probe.gradient()
        added = gradient is not None and gradient._version > probe.version
        times = self.in_a_row(probe.backwards > 0 and probe.kept and added, id(optimizer))
        if times >= IN_A_ROW and self._is_trained(probe):
            message = "gradients are not cleared between steps"
            self.report(users_line(), message, times=times, device=gradient.device.type)

    def _is_trained(self, probe: Probe) -> bool:
        """Whether a backward writes its gradient, as far as wrapped models show."""
        models = [model for known in self._models.values() if known is not None and (model := known()) is not None]
        return not models or any(probe.is_of(model) for model in models)


#: Younger graphs are not judged; in steps.
_OLD = 40
_FEW = 8
_MOST_GRAPHS = 32
#: Nodes of a graph that are visited, about a microsecond each.
_MOST_NODES = 2000
_KEY = "distdbg"


class GraphRetained(Guard):
    """Detect graphs of old steps that are still alive: the script keeps a loss, an output or a hidden state.

    In the first window each backward's graph gets tokens, which are freed with it; weak references show when. A graph
    that is alive in the next window, ninety steps later, or at the end of a shorter script, was kept."""

    id = "graph-retained"
    costs = "about 1 us for each node of the graphs of the first ten steps, 2 ms for each backward at most"
    blind = "graphs that are kept for the first time after the first ten steps; scripts of under 50 steps"

    def begin(self) -> None:
        self._tokens: list[tuple[list[Callable[[], Any]], Where | None]] = []
        self._marked_at = 0

    def window(self) -> None:
        if self.windows == 1:
            self.listen_in_window(backward=self._backward)
        elif self._tokens:
            self._judge()

    def window_ends(self) -> None:
        if self.windows == 1:
            self._marked_at = self.page.steps()

    def finish(self) -> None:
        if self._tokens and self._marked_at and self.page.steps() - self._marked_at >= _OLD:
            self._judge()

    def _backward(self, frame: FrameType) -> None:
        if len(self._tokens) >= _MOST_GRAPHS:
            return
        roots = roots_of(frame)
        node = getattr(roots[0] if roots else None, "grad_fn", None)
        nodes = _some_of(node) if node is not None else ()
        # one that has a token is an older graph's: a hidden state's, or what all steps share
        tokens = [token_on(one, _KEY) for one in nodes if _KEY not in one.metadata]
        if tokens:
            self._tokens.append((tokens, users_line()))

    def _judge(self) -> None:
        kept: dict[tuple[object, ...], int] = {}
        for tokens, where in self._tokens:
            if any(token() is not None for token in tokens):
                key = tuple(where or ())
                kept[key] = kept.get(key, 0) + 1
        marked, self._tokens = len(self._tokens), []
        for place, count in kept.items():
            if count >= _FEW:
                self.report(list(place) or None, kept=count, of=marked, after=self.page.steps() - self._marked_at)


def _some_of(node: Any) -> Iterator[Any]:
    """Nodes of a graph ever further from the loss, and one of the furthest: a tensor keeps all nodes that made it,
    and none that used it. Nodes of parameters always live, and are left out."""
    seen, level, depth = {node}, [node], 0
    while True:
        deeper = []
        for one in level:
            for function, _ in one.next_functions:
                if function is not None and function not in seen and type(function).__name__ != "AccumulateGrad":
                    seen.add(function)
                    deeper.append(function)
        if depth & (depth - 1) == 0 or not deeper or len(seen) > _MOST_NODES:
            yield level[0]
        if not deeper or len(seen) > _MOST_NODES:
            return
        level, depth = deeper, depth + 1
