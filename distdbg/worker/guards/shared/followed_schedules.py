"""Follow schedules of learning rates: how often each moves for a step of its optimizer, since when the rate is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where, users_line

_MAX_SCHEDULES = 16
#: Steps in a row with a rate of 0 before it is reported: a warm-up begins with one (`step / warmup`), and a decay ends
#: with a few. Our choice, not a published figure.
_MIN_ZERO_STEPS = 10
#: Steps in a row with a rate of 0 as a share of all steps so far: below it, they are the end of a schedule that is a
#: little shorter than its run. Our choice, not a published figure.
_MIN_ZERO_SHARE = 0.25
#: Share of the optimizer's steps before which the schedule moved at least twice. It is below 1 because the last step of
#: an epoch can have fewer micro-batches; with 10 steps or more in an epoch, that is a tenth at most.
_MIN_REPEATED_SHARE = 0.9
#: A rate below this share of the largest is 0, as rounding leaves it at the end of a cosine.
_ZERO_SHARE = 1e-9


class Schedule:
    """A schedule that the script made at the line `where`, after `since` steps. `of` gives it while it lives."""

    def __init__(self, of: Callable[[], Any], where: Where | None, since: int) -> None:
        self.of, self.where, self.since = of, where, since
        self.kind = ""


ScheduleT = TypeVar("ScheduleT", bound=Schedule)


class ScheduleGuard(Guard, Generic[ScheduleT]):
    """A guard that knows the schedules that the script has made, and does not keep them alive."""

    #: the class of the entries of `schedules`
    record: type[ScheduleT]

    def begin(self) -> None:
        self.schedules: list[ScheduleT] = []
        self.listen("scheduler", self._add_schedule)

    def listen_to_schedules(self) -> None:
        """Subscribe to what the guard needs once there is a schedule."""

    def _add_schedule(self, scheduler: Any) -> None:
        """torch's constructor is about to run."""
        reference = weak(scheduler)
        if reference is None or len(self.schedules) >= _MAX_SCHEDULES:
            return
        if not self.schedules:
            self.listen_to_schedules()
        schedule = self.record(reference, users_line(), self.page.steps())
        schedule.kind = type(scheduler).__name__
        self.schedules.append(schedule)


class FollowedSchedule(Schedule):
    """Counts begin when it is made; `moves` does not count the one that its constructor makes."""

    def __init__(self, of: Callable[[], Any], where: Where | None, since: int) -> None:
        super().__init__(of, where, since)
        #: a line that moved it twice for one step
        self.moved_at: Where | None = None
        self.steps = self.moves = self.moves_since_step = self.repeated_steps = 0
        #: steps in a row with a rate of 0 in all groups of parameters, and the first of them
        self.zero_steps = self.zero_since = 0
        self.largest_rate: float = 0.0

    @property
    def moves_a_step(self) -> float:
        """The moves for each step of the optimizer, if there are several for nearly all steps; else 0."""
        repeated = self.repeated_steps >= _MIN_REPEATED_SHARE * (self.steps - 1) > 0
        return self.moves / self.steps if repeated and self.moves >= 2 * self.steps - 1 else 0.0

    @property
    def was_positive(self) -> bool:
        return self.largest_rate > 0

    @property
    def rate_is_gone(self) -> bool:
        """The rate has been 0 for so many of the newest steps that it is not the end of a schedule."""
        return self.zero_steps >= max(_MIN_ZERO_STEPS, _MIN_ZERO_SHARE * self.steps)

    def moved(self) -> None:
        self.moves += 1
        self.moves_since_step += 1
        if self.moves_since_step == 2 and self.moved_at is None:
            self.moved_at = users_line()

    def steps_with(self, rates: list[object]) -> None:
        """Its optimizer is about to step. A rate that is a tensor may be on a device, and is not read."""
        self.steps += 1
        self.repeated_steps += self.moves_since_step >= 2
        self.moves_since_step = 0
        numbers = [rate for rate in rates if isinstance(rate, (float, int))]
        largest = max(numbers, default=0.0)
        if len(numbers) == len(rates) and largest <= _ZERO_SHARE * self.largest_rate:
            self.zero_steps += 1
            self.zero_since = self.zero_since or self.steps
        else:
            self.zero_steps = self.zero_since = 0
            self.largest_rate = max(self.largest_rate, largest)


FollowedT = TypeVar("FollowedT", bound=FollowedSchedule)


class ScheduleFollower(ScheduleGuard[FollowedT]):
    """A guard that judges each schedule from time to time, and at the end of a script that did not fail."""

    def listen_to_schedules(self) -> None:
        self.listen("scheduler-step", self._moves)
        self.listen("optimizer", self._steps)

    def judge(self, schedule: FollowedT, *, ended: bool) -> None:
        raise NotImplementedError

    def look(self) -> None:
        self.judge_all(ended=False)

    def judge_all(self, *, ended: bool) -> None:
        for schedule in self.schedules:
            scheduler = schedule.of()
            schedule.kind = type(scheduler).__name__ if scheduler is not None else schedule.kind
            self.judge(schedule, ended=ended)

    def _moves(self, scheduler: Any) -> None:
        if getattr(scheduler, "_step_count", 0) < 2:  # set to 0, and then counted to 1, by its constructor
            return
        for schedule in self.schedules:
            if schedule.of() is scheduler:
                schedule.moved()
                return

    def _steps(self, optimizer: Any) -> None:
        groups = getattr(optimizer, "param_groups", ())
        for schedule in self.schedules:
            if getattr(schedule.of(), "optimizer", None) is optimizer:
                schedule.steps_with([group["lr"] for group in groups])
