"""Detect a schedule made for steps that moves once an epoch, or one made for epochs that moves with each step.

It compares at the end of a complete script: moves of the schedule, passes and steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.passes import Pass, PassGuard
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where, users_line

_MOST = 16
#: Where each kind keeps the length that it was made for.
_LENGTHS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max"}


class SchedulerCadence(PassGuard):
    id = "scheduler-cadence"
    modes = ("off", "warn")
    costs = "some us for each schedule and each pass over a loader"
    blind = "other schedules than OneCycleLR and CosineAnnealingLR; scripts that do not run to their end"

    def begin(self) -> None:
        super().begin()
        self._schedules: list[_PlannedSchedule] = []
        self._passes = 0
        self.listen("scheduler", self._made)

    def pass_begins(self, _now: Pass, _iterator: Any) -> bool:
        return True

    def trained(self, _now: Pass) -> None:
        self._passes += 1
        self._look()

    def _made(self, scheduler: Any) -> None:
        reference = weak(scheduler)
        if reference is not None and len(self._schedules) < _MOST:
            self._schedules.append(_PlannedSchedule(reference, users_line(), self.context.steps))

    def _look(self) -> None:
        """Repeated, since a schedule of a function does not live until the end."""
        for one in self._schedules:
            scheduler = one.of()
            if scheduler is not None:
                one.kind = type(scheduler).__name__
                one.moved = scheduler.last_epoch
                one.planned = getattr(scheduler, _LENGTHS.get(one.kind, ""), 0)
                one.steps = self.context.steps - one.since

    def finish(self) -> None:
        super().finish()
        self._look()
        passes = self._passes
        for one in self._schedules:
            if passes < 2 or one.steps < 5 * passes or not one.planned:
                continue
            wrong = ""
            if one.kind == "OneCycleLR" and abs(one.moved - passes) <= 1 and one.planned >= 5 * max(one.moved, 1):
                # a length that is no match for the steps counts epochs, and the training was stopped early
                wrong = "steps" if 2 * one.planned >= one.steps else ""
            elif one.kind == "CosineAnnealingLR" and one.planned == passes and 10 * one.moved >= 9 * one.steps:
                wrong = "passes"
            if wrong:
                self.report(one.where, scheduler=one.kind, planned=one.planned, moved=one.moved, steps=one.steps,
                         passes=passes, made_for=wrong)  # fmt: skip


class _PlannedSchedule:
    def __init__(self, of: Callable[[], Any], where: Where | None, since: int) -> None:
        self.of, self.where, self.since = of, where, since
        self.kind = ""
        self.moved = self.planned = self.steps = 0
