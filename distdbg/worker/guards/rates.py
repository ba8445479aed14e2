"""Detect learning rates that train nothing."""

from __future__ import annotations

from distdbg.worker.guards.shared.base import script_failed
from distdbg.worker.guards.shared.followed_schedules import FollowedSchedule, ScheduleFollower

#: A script of fewer steps than this may be a trial of the first ones of a warm-up.
_MIN_STEPS = 30


class LearningRateZero(ScheduleFollower):
    """Detect a schedule that has set the learning rate of all groups of parameters to 0 while the training goes on.

    That is: a quarter of all steps, the newest, at least ten; or all steps of a script that has ended. A schedule that
    moves several times for each step is `scheduler-cadence`."""

    id = "learning-rate-zero"
    costs = "about 1 us for each step, where there is a schedule"
    blind = "rates that the script sets without a schedule of torch; rates that are tensors; a schedule that ends at 0"

    def judge(self, schedule: FollowedSchedule, *, ended: bool) -> None:
        never_positive = ended and not schedule.was_positive and schedule.steps >= _MIN_STEPS
        if schedule.moves_a_step or not schedule.rate_is_gone or not (schedule.was_positive or never_positive):
            return
        self.report(schedule.where, scheduler=schedule.kind, since=schedule.zero_since, zero=schedule.zero_steps,
                    steps=schedule.steps)  # fmt: skip

    def finish(self) -> None:
        if not script_failed():
            self.judge_all(ended=True)
