"""A schedule that was made for steps moves once an epoch, or one that was made for epochs moves with each step.

Judged at the end of a script that came to its end: how often the schedule moved, beside the passes and the steps.
"""

from __future__ import annotations

from distdbg.worker.guards._base import users_line
from distdbg.worker.guards._passes import PassGuard, weak

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.guards._base import Where
    from distdbg.worker.guards._passes import Pass

_MOST = 16


class SchedulerCadence(PassGuard):
    id = "scheduler-cadence"
    modes = ("off", "warn")
    costs = "some us for each schedule and each pass over a loader"
    blind = "other schedules than OneCycleLR and CosineAnnealingLR; scripts that do not come to their end"

    def begin(self) -> None:
        super().begin()
        self._schedules: list[tuple[Callable[[], Any], Where | None, int]] = []
        self._passes = 0
        self.listen("scheduler", self._made)

    def pass_begins(self, _now: Pass, _iterator: Any) -> bool:  # noqa: ANN401
        return True

    def trained(self, _now: Pass) -> None:
        self._passes += 1

    def _made(self, scheduler: Any) -> None:  # noqa: ANN401
        reference = weak(scheduler)
        if reference is not None and len(self._schedules) < _MOST:
            self._schedules.append((reference, users_line(), self.desk.steps))

    def finish(self) -> None:
        super().finish()
        for reference, where, since in self._schedules:
            scheduler = reference()
            if scheduler is not None:
                self._judge(scheduler, where, self.desk.steps - since)

    def _judge(self, scheduler: Any, where: Where | None, steps: int) -> None:  # noqa: ANN401
        kind, passes, moved = type(scheduler).__name__, self._passes, scheduler.last_epoch
        if passes < 2 or steps < 5 * passes:
            return
        if kind == "OneCycleLR":
            planned = scheduler.total_steps
            slow = abs(moved - passes) <= 1 and planned >= 5 * max(moved, 1)
            wrong = "steps" if slow else ""
        elif kind == "CosineAnnealingLR":
            planned = scheduler.T_max
            wrong = "passes" if planned == passes and 10 * moved >= 9 * steps else ""
        else:
            return
        if wrong:
            self.say(where, scheduler=kind, planned=planned, moved=moved, steps=steps, passes=passes, made_for=wrong)
