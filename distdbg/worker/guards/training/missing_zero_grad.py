"""Detect gradients of the last step that the next backward adds to, and that the optimizer steps on.

That is: after a step the gradient is not cleared before any backward, and was added to when the same optimizer steps
again; three times in one window. Accumulation clears after the step; a GAN clears before its discriminator's backward.
autograd.grad adds nothing, and a parameter outside the wrapped models may be a copy with a gradient written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.gradients import Probe, is_filled, probe_of
from distdbg.worker.models import parameters_of, weak
from distdbg.worker.user_code import users_line

_TIMES = 3


class MissingZeroGrad(Guard):
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
        self._of: dict[int, _State] = {}
        self.listen_in_window(forward=self._forward, step=self._stepped, backward=self._backward, optimizer=self._steps)

    def window_ends(self) -> None:
        self._of = {}

    def _forward(self, module: Any) -> None:
        self._models[id(module)] = weak(module)

    def _stepped(self, optimizer: Any) -> None:
        state = self._of.setdefault(id(optimizer), _State())
        state.probe, state.backwards, state.kept = probe_of(parameters_of(optimizer)), 0, True

    def _backward(self, frame: FrameType) -> None:
        if frame.f_code.co_name == "grad":
            return
        for state in self._of.values():
            if state.probe is not None and state.kept:
                state.kept = _is_kept(state.probe, state.backwards)
                state.backwards += 1

    def _steps(self, optimizer: Any) -> None:
        state = self._of.get(id(optimizer))
        if state is None or state.probe is None:
            return
        gradient = state.probe.gradient()
        added = gradient is not None and gradient._version > state.probe.version
        state.times = state.times + 1 if state.backwards and state.kept and added else 0
        if state.times >= _TIMES and self._is_trained(state.probe):
            self.report(users_line(), "gradients are not cleared between steps", times=state.times,
                     device=gradient.device.type)  # fmt: skip

    def _is_trained(self, probe: Probe) -> bool:
        """Whether a backward writes its gradient, as far as wrapped models show."""
        models = [model for known in self._models.values() if known is not None and (model := known()) is not None]
        return not models or any(probe.is_of(model) for model in models)


class _State:
    """Of one optimizer."""

    def __init__(self) -> None:
        self.probe: Probe | None = None
        self.backwards = self.times = 0
        self.kept = False


def _is_kept(probe: Probe, backwards: int) -> bool:
    """Whether a backward is about to add to the gradient of the last step."""
    gradient = probe.gradient()
    if gradient is None or (not backwards and gradient._version != probe.version):
        return False
    filled = is_filled(gradient)
    return not backwards if filled is None else filled
