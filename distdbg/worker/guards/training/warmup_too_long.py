"""Detect a training that ended while the schedule of the learning rate was in its warm-up.

It judges at the end of a script that ended by itself with a complete training: its last pass over a loader was
complete, or the schedule had made all planned moves. A trial of fifty steps proves nothing about a warm-up of a
thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.guards.shared.warmups import warmup_of
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where, users_line

_STEPS = 30
_MOST = 16
_MOST_PASSES = 10_000
#: A schedule that moves once a pass, and was made for steps, is `scheduler-cadence`.
_STEPS_A_MOVE = 5


class WarmupTooLong(Guard):
    id = "warmup-too-long"
    modes = ("off", "warn")
    costs = "some us for each schedule, and for each pass over a loader while it is in its warm-up"
    blind = (
        "other schedules than LinearLR, OneCycleLR and those of transformers; trainings of under 30 steps, or broken "
        "off in the middle of a pass; IterableDataset, whose end is unknown, where a schedule has no planned length"
    )

    def begin(self) -> None:
        self._schedules: list[_WarmupSchedule] = []
        self._passes = 0
        #: the newest epoch that was gone through to its end, and the steps at that end
        self._epochs, self._ended_at = self.context.epochs, -1
        self.listen("scheduler", self._made)

    def _made(self, scheduler: Any) -> None:
        reference = weak(scheduler)
        if reference is None or len(self._schedules) >= _MOST:
            return
        if not self._schedules:
            self.listen("data-end", self._ends)
        self._schedules.append(_WarmupSchedule(reference, users_line(), self.context.steps))

    def _ends(self, _iterator: object) -> None:
        if self.context.epochs > self._epochs:
            self._epochs, self._ended_at = self.context.epochs, self.context.steps
        self._passes += 1
        for one in self._schedules:
            one.look(self.context.steps)
        self._schedules = [one for one in self._schedules if one.warms_up]
        if not self._schedules or self._passes > _MOST_PASSES:
            self._schedules = []
            self.unsubscribe("data-end")

    def finish(self) -> None:
        if script_failed():
            return
        for one in self._schedules:
            one.look(self.context.steps)
            steps = self.context.steps - one.since
            # a run that stops early, or is one of several, proves nothing against a plan that includes the warm-up;
            # a plan in micro-batches, four of them a step, looks the same as a run of its first quarter
            planned_so = one.planned <= one.moves or one.warmup >= one.planned
            ended = planned_so if one.planned > 0 else self.context.steps == self._ended_at
            if one.warms_up and one.moves > 1 and steps >= _STEPS and ended and not one.is_slow(steps):
                self.report(one.where, scheduler=one.kind, warmup=one.warmup, moves=one.moves, steps=steps,
                         rate=one.rate, peak=one.peak)  # fmt: skip


class _WarmupSchedule:
    """A schedule at its last look, since one of a function does not live until the end."""

    def __init__(self, of: Callable[[], Any], where: Where | None, since: int) -> None:
        self.of, self.where, self.since = of, where, since
        self.kind = ""
        self.moves = self.planned = 0
        self.warmup = self.rate = self.peak = 0.0
        self.warms_up = True

    def look(self, steps: int) -> None:
        scheduler = self.of()
        if scheduler is None:
            return
        found = warmup_of(scheduler)
        rate = None if found is None else scheduler.optimizer.param_groups[0]["lr"]
        if found is None or not isinstance(rate, (int, float)):
            self.warms_up = False
            return
        # a SequentialLR stops moving what it is past, one move before the end: then the rate is no longer theirs
        moves, last = scheduler.last_epoch, getattr(scheduler, "_last_lr", None) or [rate]
        rules = last[0] == rate or moves + 1 >= steps - self.since
        self.warms_up = rules and moves + 1 < found.moves and self.rate <= rate < found.peak
        self.kind, self.moves, self.rate, self.peak = type(scheduler).__name__, moves, rate, found.peak
        self.warmup, self.planned = found.moves, found.planned

    def is_slow(self, steps: int) -> bool:
        return self.kind == "OneCycleLR" and steps >= _STEPS_A_MOVE * self.moves
