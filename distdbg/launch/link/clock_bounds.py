"""Bound how far an agent's clock is from the launcher's, by the times of pings and of their answers."""

from __future__ import annotations

import math


class ClockBounds:
    """`least_s` and `most_s`: the agent's clock is ahead of the launcher's by so many seconds, less than 0 if behind.

    The ping with the shortest round trip counts. A clock that is set while the job runs is not noticed.
    """

    def __init__(self) -> None:
        self.least_s, self.most_s = -math.inf, math.inf

    def answered(self, asked: float, answer: float, now: float) -> bool:
        """Return whether the clocks differ, and are now known twice as well as before.

        Args:
            asked: the launcher's time when it sent the ping.
            answer: the agent's time when it answered.
            now: the launcher's time when the answer arrived.
        """
        if not 0 <= now - asked < (self.most_s - self.least_s) / 2:
            return False
        self.least_s, self.most_s = answer - now, answer - asked
        return self.least_s > 0 or self.most_s < 0
