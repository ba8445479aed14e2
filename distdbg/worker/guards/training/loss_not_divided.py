"""Detect accumulated micro-batches whose losses are means: the gradients are too large by their number.

That is: several backwards from one line, one for each batch of one loader, no gradient cleared between them, before one
step of the optimizer; each begins from a mean that nothing changed; three times in one window. Two losses of one batch
are no micro-batches. A script that divides gradients itself is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.gradients import CHANGES_GRADIENTS, dense_one, is_filled
from distdbg.worker.guards.shared.graphs import LOSSES, begins_with_ones, chain_of, kind_of
from distdbg.worker.guards.shared.scalers import ScalerGuard
from distdbg.worker.guards.shared.units import holds_unreduced
from distdbg.worker.hook_points import roots_of
from distdbg.worker.models import parameters_of, weak
from distdbg.worker.user_code import Where, mentioned, users_line

_TIMES = 3
_MEAN = 1  # torch.nn._reduction


class LossNotDivided(ScalerGuard):
    id = "loss-not-divided"
    costs = "about 25 us for each of ten steps in a thousand"
    blind = (
        "losses whose graph does not show a mean; learning rates that compensate; data that comes from no DataLoader"
    )

    def window(self) -> None:
        self._begin_step()
        self._times = 0
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
        self._times = self._times + 1 if added_up else 0
        if self._times == _TIMES and not mentioned(CHANGES_GRADIENTS):
            self.report(places[0][0], losses=len(places), optimizer=type(optimizer).__name__)
