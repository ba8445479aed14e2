"""Gradients of the last step are still there when the next backward adds to them, and the optimizer steps on the sum.

Meant is: after a step the gradient is not cleared before the first backward, nor before any other backward, and was
added to when the same optimizer steps again; three times in one window. Who accumulates over micro-batches clears after
the step; a GAN clears before its discriminator's own backward.
"""

from __future__ import annotations

from distdbg.worker.guards._base import Guard, users_line
from distdbg.worker.guards._gradients import Probe, is_filled, parameters_of, probe_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TIMES = 3


class MissingZeroGrad(Guard):
    id = "missing-zero-grad"
    modes = ("off", "warn", "error")
    costs = "about 15 us for each of ten steps in a thousand"
    blind = (
        "optimizers that call a closure; off the CPU, several backwards between two steps of an optimizer; FSDP, where "
        "its gradients show no version"
    )

    def window(self) -> None:
        self._of: dict[int, _State] = {}
        self.listen("step", self._stepped)
        self.listen("backward", self._backward)
        self.listen("optimizer", self._steps)

    def window_ends(self) -> None:
        self.deaf()
        self._of = {}

    def _stepped(self, optimizer: Any) -> None:  # noqa: ANN401
        state = self._of.setdefault(id(optimizer), _State())
        state.probe, state.backwards, state.kept = probe_of(parameters_of(optimizer)), 0, True

    def _backward(self, _frame: object) -> None:
        for state in self._of.values():
            if state.probe is not None and state.kept:
                state.kept = _is_kept(state.probe, state.backwards)
                state.backwards += 1

    def _steps(self, optimizer: Any) -> None:  # noqa: ANN401
        state = self._of.get(id(optimizer))
        if state is None or state.probe is None:
            return
        gradient = state.probe.gradient()
        added = gradient is not None and gradient._version > state.probe.version
        state.times = state.times + 1 if state.backwards and state.kept and added else 0
        if state.times >= _TIMES:
            self.say(users_line(), "gradients are not cleared between steps", times=state.times,
                     device=gradient.device.type)  # fmt: skip


class _State:
    """Of one optimizer."""

    def __init__(self) -> None:
        self.probe: Probe | None = None
        self.backwards = self.times = 0
        self.kept = False


def _is_kept(probe: Probe, backwards: int) -> bool:
    """A backward is about to add to what the last step used."""
    gradient = probe.gradient()
    if gradient is None or (not backwards and gradient._version != probe.version):
        return False
    filled = is_filled(gradient)
    return not backwards if filled is None else filled
