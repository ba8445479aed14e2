"""Compute boxes of step times: the quartiles and the median of each rank's windows of steps."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.evidence.run import RankRecord, RunEvidence, StepTimes
from distdbg.report.document import Block

#: Of more ranks only the slowest and the fastest are drawn.
_MOST, _SLOWEST, _FASTEST = 48, 24, 8


@dataclass(frozen=True)
class StepBox:
    """`left`, `width` and `middle` are per cent of the drawing's width, which is the longest quartile of all ranks."""

    who: str
    left: float
    width: float
    middle: float
    words: str


@dataclass(frozen=True)
class StepBoxes(Block):
    """`left_out` is how many ranks are between the slowest and the fastest that are drawn."""

    boxes: tuple[StepBox, ...]
    left_out: int


def step_boxes(evidence: RunEvidence) -> StepBoxes | None:
    """None where no rank made enough steps to tell. By rank; of many, by their median, the slowest first."""
    known = [rank for rank in evidence.ranks if rank.step_times is not None and rank.step_times.high > 0]
    if not known:
        return None
    widest = max(rank.step_times.high for rank in known if rank.step_times is not None)
    shown = known
    if len(known) > _MOST:
        ordered = sorted(known, key=lambda r: -(r.step_times.median if r.step_times else 0.0))
        shown = [*ordered[:_SLOWEST], *ordered[-_FASTEST:]]
    return StepBoxes(tuple(_box(rank, widest) for rank in shown), len(known) - len(shown))


def _box(rank: RankRecord, widest: float) -> StepBox:
    times = rank.step_times
    assert times is not None
    left, right, middle = (round(100 * value / widest, 2) for value in (times.low, times.high, times.median))
    return StepBox(f"rank {rank.rank}", left, max(0.4, round(right - left, 2)), middle, times_words(times))


def times_words(times: StepTimes) -> str:
    """The median, and the quartiles."""
    return f"{milliseconds(times.median)} ({milliseconds(times.low)} to {milliseconds(times.high)})"


def milliseconds(value: float) -> str:
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"
