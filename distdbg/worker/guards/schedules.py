"""Detect schedules of the learning rate that move at the wrong time, or set a rate that trains nothing."""

from __future__ import annotations

from typing import Any

from distdbg.worker.guards.shared.base import IN_A_ROW, script_failed
from distdbg.worker.guards.shared.followed_schedules import (
    FollowedSchedule,
    Schedule,
    ScheduleFollower,
    ScheduleGuard,
)
from distdbg.worker.guards.shared.passes import LoaderPass, PassGuard
from distdbg.worker.user_code import users_line


class _MovingSchedule(Schedule):
    """`at_step` is how often it had moved at its optimizer's last step, `at_backward` at the newest backward since."""

    stepped = False
    at_backward: int | None = None
    at_step: int | None = None

    def optimizer(self) -> Any:
        return getattr(self.of(), "optimizer", None)

    def moves(self) -> int | None:
        """torch's own count; a schedule within another, as SequentialLR has them, may not move."""
        count = getattr(self.of(), "_step_count", None)
        return count if type(count) is int else None


class SchedulerBeforeOptimizer(ScheduleGuard[_MovingSchedule]):
    """Detect a schedule that moves between a backward and the step that uses its gradients.

    That is: after a step of an optimizer follows a backward, then its scheduler moves, then it steps; three times in
    one window. GradScaler may skip a step; a schedule that moves all the same then moves before the next backward. The
    backward of a closure is within the step."""

    id = "scheduler-before-optimizer"
    modes = ("off", "warn", "error")
    most_windows = 2
    costs = "about 2 us for each of the steps 2 to 11 and 101 to 110, where there is a schedule"
    blind = (
        "schedules that move at the head of an epoch or of a step, before the backward; schedules that are no torch's"
    )

    record = _MovingSchedule

    def window(self) -> None:
        if self.schedules:
            for schedule in self.schedules:
                schedule.stepped, schedule.at_backward = False, None
            self.listen_in_window(step=self._stepped, backward=self._backward, optimizer=self._steps)

    def window_ends(self) -> None:
        if self.windows == self.most_windows:
            self.unsubscribe()
            self.schedules = []

    def _stepped(self, optimizer: Any) -> None:
        for schedule in self.schedules:
            if schedule.optimizer() is optimizer:
                schedule.stepped, schedule.at_backward, schedule.at_step = True, None, schedule.moves()

    def _backward(self, _frame: object) -> None:
        for schedule in self.schedules:
            if schedule.stepped:
                schedule.at_backward = schedule.moves()

    def _steps(self, optimizer: Any) -> None:
        for schedule in self.schedules:
            if schedule.at_backward is None or schedule.optimizer() is not optimizer:
                continue
            now, before = schedule.moves(), schedule.at_backward
            # schedule that moves with each micro-batch is `scheduler-cadence`
            times = self.in_a_row(now is not None and now - 1 == before == schedule.at_step, schedule)
            if times >= IN_A_ROW:
                kind = type(schedule.of()).__name__
                self.report(users_line(), f"the {kind} moves before the optimizer steps", scheduler=kind, times=times)


#: Where each kind keeps the length that it was made for.
_LENGTHS = {"OneCycleLR": "total_steps", "CosineAnnealingLR": "T_max"}


class _PlannedSchedule(FollowedSchedule):
    """At the newest look: its count of moves, the number that it was made for, and the steps of all optimizers."""

    last_epoch = planned = all_steps = 0


class SchedulerCadence(PassGuard, ScheduleFollower[_PlannedSchedule]):
    """Detect a schedule made for steps that moves once an epoch, or one made for epochs that moves with each step.

    It compares at the end of a complete script: moves of the schedule, passes and steps. A schedule that moves several
    times for each step of its optimizer is one if the rate is 0 for a quarter of the steps, or its length is the number
    of steps."""

    id = "scheduler-cadence"
    costs = "some us for each schedule and each pass over a loader, about 1 us for each step"
    blind = (
        "other schedules than OneCycleLR and CosineAnnealingLR, unless they move several times for each step; scripts "
        "that do not run to their end, unless the rate is 0"
    )

    record = _PlannedSchedule

    def begin(self) -> None:
        PassGuard.begin(self)
        ScheduleFollower.begin(self)
        self._passes = 0

    def judge(self, schedule: _PlannedSchedule, *, ended: bool) -> None:
        if not schedule.moves_a_step:
            return
        planned = _planned_moves(schedule.of()) if ended else 0
        fits_steps = schedule.steps >= _FEWEST_STEPS and abs(planned - schedule.steps) <= 0.1 * schedule.steps
        rate_is_gone = schedule.rate_is_gone and schedule.was_positive
        if rate_is_gone or fits_steps:
            self.report(schedule.moved_at or schedule.where, scheduler=schedule.kind, ratio=schedule.moves_a_step,
                        moves=schedule.moves, steps=schedule.steps, planned=planned,
                        zero_since=schedule.zero_since if rate_is_gone else 0)  # fmt: skip

    def pass_begins(self, _now: LoaderPass, _iterator: Any) -> bool:
        return True

    def trained(self, _now: LoaderPass) -> None:
        self._passes += 1
        self._look()

    def _look(self) -> None:
        """Repeated, since a schedule of a function does not live until the end."""
        for schedule in self.schedules:
            scheduler = schedule.of()
            if scheduler is not None:
                schedule.kind = type(scheduler).__name__
                schedule.last_epoch = scheduler.last_epoch
                schedule.planned = getattr(scheduler, _LENGTHS.get(schedule.kind, ""), 0)
                schedule.all_steps = self.page.steps() - schedule.since

    def finish(self) -> None:
        PassGuard.finish(self)
        if not script_failed():
            self.judge_all(ended=True)
        self._look()
        for schedule in self.schedules:
            made_for = _made_for(schedule, self._passes)
            if made_for:
                self.report(schedule.where, scheduler=schedule.kind, planned=schedule.planned,
                            moved=schedule.last_epoch, steps=schedule.all_steps, passes=self._passes,
                            made_for=made_for)  # fmt: skip


def _made_for(schedule: _PlannedSchedule, passes: int) -> str:
    """Return `steps` for a schedule that moves once a pass, `passes` for one that moves with each step, else ""."""
    moved, planned, steps = schedule.last_epoch, schedule.planned, schedule.all_steps
    if passes < 2 or steps < 5 * passes or not planned:
        return ""
    if schedule.kind == "OneCycleLR" and abs(moved - passes) <= 1 and planned >= 5 * max(moved, 1):
        # a length that is no match for the steps counts epochs, and the training was stopped early
        return "steps" if 2 * planned >= steps else ""
    return "passes" if schedule.kind == "CosineAnnealingLR" and planned == passes and 10 * moved >= 9 * steps else ""


def _planned_moves(scheduler: Any) -> int:
    """The number of moves that a schedule was made for; 0 if it does not say."""
    planned = getattr(scheduler, _LENGTHS.get(type(scheduler).__name__, ""), 0)
    if type(scheduler).__name__ == "LambdaLR":
        planned = _arguments_of(scheduler.lr_lambdas[0]).get(_TOTAL, 0)
    return planned if isinstance(planned, int) else 0


#: A script of fewer steps may be a trial of the first steps of a warm-up.
_FEWEST_STEPS = 30
_MOST_PASSES = 10_000
#: A schedule that moves once a pass, and was made for steps, is `scheduler-cadence`.
_STEPS_A_MOVE = 5


class _WarmupSchedule(Schedule):
    """A schedule at its last look, since one of a function does not live until the end."""

    moves = planned = 0
    warmup = rate = peak = 0.0
    warms_up = True

    def look(self, steps: int) -> None:
        scheduler = self.of()
        if scheduler is None:
            return
        found = warmup_of(scheduler)
        rates = [] if found is None else [scheduler.optimizer.param_groups[0]["lr"], found[2]]
        if found is None or not all(isinstance(one, (int, float)) for one in rates):  # a tensor may be on a device
            self.warms_up = False
            return
        rate, (warmup, planned, peak) = rates[0], found
        # a SequentialLR stops moving what it is past, one move before the end: then the rate is no longer theirs
        moves, last = scheduler.last_epoch, getattr(scheduler, "_last_lr", None) or [rate]
        rules = last[0] == rate or moves + 1 >= steps - self.since
        self.warms_up = rules and moves + 1 < warmup and self.rate <= rate < peak
        self.kind, self.moves, self.rate = type(scheduler).__name__, moves, rate
        self.warmup, self.planned, self.peak = warmup, planned, peak

    def is_in_warmup(self, steps: int) -> bool:
        moves_once_a_pass = self.kind == "OneCycleLR" and steps >= _STEPS_A_MOVE * self.moves
        return self.warms_up and self.moves > 1 and not moves_once_a_pass


class WarmupTooLong(ScheduleGuard[_WarmupSchedule]):
    """Detect a training that ended while the schedule of the learning rate was in its warm-up.

    It judges at the end of a script that ended by itself with a complete training: its last pass over a loader was
    complete, or the schedule had made all planned moves. A trial of fifty steps proves nothing about a warm-up of a
    thousand."""

    id = "warmup-too-long"
    costs = "some us for each schedule, and for each pass over a loader while it is in its warm-up"
    blind = (
        "other schedules than LinearLR, OneCycleLR and those of transformers; trainings of under 30 steps, or broken "
        "off in the middle of a pass; IterableDataset, whose end is unknown, where a schedule has no planned length"
    )

    record = _WarmupSchedule

    def begin(self) -> None:
        super().begin()
        #: the newest epoch that was gone through to its end, and the steps at that end
        self._epochs, self._ended_at = self.page.epochs(), -1

    def listen_to_schedules(self) -> None:
        self.listen("data-end", self._ends)

    def _ends(self, _iterator: object) -> None:
        if self.page.epochs() > self._epochs:
            self._epochs, self._ended_at = self.page.epochs(), self.page.steps()
        for schedule in self.schedules:
            schedule.look(self.page.steps())
        self.schedules = [schedule for schedule in self.schedules if schedule.warms_up]
        if self.passes_end(_MOST_PASSES, "data-end") or not self.schedules:
            self.schedules = []
            self.unsubscribe("data-end")

    def finish(self) -> None:
        if script_failed():
            return
        for schedule in self.schedules:
            schedule.look(self.page.steps())
            steps = self.page.steps() - schedule.since
            # a run that stops early, or is one of several, proves nothing against a plan that includes the warm-up;
            # a plan in micro-batches, four of them a step, looks the same as a run of its first quarter
            planned_so = schedule.planned <= schedule.moves or schedule.warmup >= schedule.planned
            ended = planned_so if schedule.planned > 0 else self.page.steps() == self._ended_at
            if ended and steps >= _FEWEST_STEPS and schedule.is_in_warmup(steps):
                self.report(schedule.where, scheduler=schedule.kind, warmup=schedule.warmup, moves=schedule.moves,
                            steps=steps, rate=schedule.rate, peak=schedule.peak)  # fmt: skip


#: The names of the two numbers in transformers, and in copies of its schedules.
_WARMUP, _TOTAL = "num_warmup_steps", "num_training_steps"


def warmup_of(scheduler: Any) -> tuple[float, int, Any] | None:
    """Moves of the schedule, of how many in all (0 where it does not say), and the rate after them; None for a schedule
    without a warm-up, and for other kinds."""
    kind = type(scheduler).__name__
    if kind == "LinearLR":
        if scheduler.start_factor < scheduler.end_factor:
            return scheduler.total_iters, 0, scheduler.base_lrs[0] * scheduler.end_factor
    elif kind == "OneCycleLR":
        phases = getattr(scheduler, "_schedule_phases", None)
        peak = scheduler.optimizer.param_groups[0].get("max_lr")
        if phases and isinstance(peak, float):
            return phases[0]["end_step"], scheduler.total_steps, peak
    elif kind == "LambdaLR":
        given_numbers = _arguments_of(scheduler.lr_lambdas[0])
        moves, planned = given_numbers.get(_WARMUP), given_numbers.get(_TOTAL)
        if isinstance(moves, int) and moves > 0:
            return moves, planned if isinstance(planned, int) else 0, scheduler.base_lrs[0]
    return None


def _arguments_of(function: Any) -> dict[str, Any]:
    """The keyword arguments of a partial, or the variables of a nested function."""
    if isinstance(given := getattr(function, "keywords", None), dict):
        return given
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = getattr(function, "__closure__", None) or ()
    return {name: _value(cell) for name, cell in zip(names, cells, strict=False) if name in (_WARMUP, _TOTAL)}


def _value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing in it yet
        return None


class LearningRateZero(ScheduleFollower[FollowedSchedule]):
    """Detect a schedule that has set the learning rate of all groups of parameters to 0 while the training goes on.

    That is: a quarter of all steps, the newest, at least ten; or all steps of a script that has ended. A schedule that
    moves several times for each step is `scheduler-cadence`."""

    id = "learning-rate-zero"
    costs = "about 1 us for each step, where there is a schedule"
    blind = "rates that the script sets without a schedule of torch; rates that are tensors; a schedule that ends at 0"

    record = FollowedSchedule

    def judge(self, schedule: FollowedSchedule, *, ended: bool) -> None:
        never_positive = ended and not schedule.was_positive and schedule.steps >= _FEWEST_STEPS
        if schedule.moves_a_step or not schedule.rate_is_gone or not (schedule.was_positive or never_positive):
            return
        self.report(schedule.where, scheduler=schedule.kind, since=schedule.zero_since, zero=schedule.zero_steps,
                    steps=schedule.steps)  # fmt: skip

    def finish(self) -> None:
        if not script_failed():
            self.judge_all(ended=True)
