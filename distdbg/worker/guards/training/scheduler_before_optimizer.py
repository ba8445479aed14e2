"""Detect a schedule that moves between a backward and the step that uses its gradients.

That is: after a step of an optimizer follows a backward, then its scheduler moves, then it steps; three times in one
window. GradScaler may skip a step; a schedule that moves all the same then moves before the next backward. The backward
of a closure is within the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import weak
from distdbg.worker.user_code import users_line

_TIMES = 3
_MOST = 16


class SchedulerBeforeOptimizer(Guard):
    id = "scheduler-before-optimizer"
    modes = ("off", "warn", "error")
    most_windows = 2
    costs = "about 2 us for each of the steps 2 to 11 and 101 to 110, where there is a schedule"
    blind = (
        "schedules that move at the head of an epoch or of a step, before the backward; schedules that are no torch's"
    )

    def begin(self) -> None:
        self._schedules: list[_MovingSchedule] = []
        self.listen("scheduler", self._made)

    def _made(self, scheduler: Any) -> None:
        reference = weak(scheduler)
        if reference is not None and len(self._schedules) < _MOST:
            self._schedules.append(_MovingSchedule(reference))

    def window(self) -> None:
        if self._schedules:
            for one in self._schedules:
                one.stepped, one.at_backward, one.times = False, None, 0
            self.listen_in_window(step=self._stepped, backward=self._backward, optimizer=self._steps)

    def window_ends(self) -> None:
        if self.windows == self.most_windows:
            self.unsubscribe()
            self._schedules = []

    def _stepped(self, optimizer: Any) -> None:
        for one in self._schedules:
            if one.optimizer() is optimizer:
                one.stepped, one.at_backward = True, None

    def _backward(self, _frame: object) -> None:
        for one in self._schedules:
            if one.stepped:
                one.at_backward = one.moves()

    def _steps(self, optimizer: Any) -> None:
        for one in self._schedules:
            if one.at_backward is None or one.optimizer() is not optimizer:
                continue
            now, before = one.moves(), one.at_backward
            one.times = one.times + 1 if now is not None and now == before + 1 else 0
            if one.times >= _TIMES:
                kind = type(one.of()).__name__
                self.report(
                    users_line(), f"the {kind} moves before the optimizer steps", scheduler=kind, times=one.times
                )


class _MovingSchedule:
    """`at_backward` is how often it had moved when the last backward began since its optimizer's last step."""

    def __init__(self, of: Callable[[], Any]) -> None:
        self.of = of
        self.stepped = False
        self.at_backward: int | None = None
        self.times = 0

    def optimizer(self) -> Any:
        return getattr(self.of(), "optimizer", None)

    def moves(self) -> int | None:
        """torch's own count; a schedule within another, as SequentialLR has them, may not move."""
        count = getattr(self.of(), "_step_count", None)
        return count if type(count) is int else None
