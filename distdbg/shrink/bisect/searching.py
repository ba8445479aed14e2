"""Find the smallest values that still show a failure. Pure: the caller gives the function that tries."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """What can be made smaller: from `high`, with which it shows, down to `low`, in steps of `step` above `low`."""

    name: str
    low: int
    high: int
    step: int = 1

    def below(self, number: int) -> int:
        """The value of a step, from 0 for the lowest; never more than `high`."""
        return min(self.low + number * self.step, self.high)

    @property
    def steps(self) -> int:
        """The number of the step that is `high`."""
        return max(0, math.ceil((self.high - self.low) / self.step))


@dataclass(frozen=True)
class Found:
    """`value` shows it, `fails` is the next smaller one, which does not; None where the axis ends there."""

    value: int
    fails: int | None


def smallest(axis: Axis, shows: Callable[[int], bool]) -> Found:
    """The smallest value of an axis that shows it. The lowest is tried first, then what halves the ratio of the two
    bounds: small values are cheap to try. `shows` is not asked about `high`."""
    if axis.steps == 0:
        return Found(axis.high, None)
    if shows(axis.low):
        return Found(axis.low, None)
    not_yet, does = 0, axis.steps
    while does - not_yet > 1:
        estimate = math.isqrt(max(1, axis.below(not_yet)) * axis.below(does))
        middle = min(max((estimate - axis.low) // axis.step, not_yet + 1), does - 1)
        if shows(axis.below(middle)):
            does = middle
        else:
            not_yet = middle
    return Found(axis.below(does), axis.below(not_yet))
