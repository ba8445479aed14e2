"""Compute the timeline of ranks: when each ran and how it ended. Equal ranks share a row; the others come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.evidence.run import RankRecord, RunEvidence, StepTimes
from distdbg.model import fold_ranks
from distdbg.report.document import Block

#: Up to so many ranks each has a row of its own.
FOLD_ABOVE = 16
#: Of the folded rows, so many are drawn; the rest is counted.
MOST_ROWS = 40
#: Ranks whose times differ by less than this part of the whole look alike.
_ALIKE = 0.01


@dataclass(frozen=True)
class TimelineSpan:
    """When a rank ran, in epoch seconds; `kind` says how it ended (see KINDS), `mark` is the first symptom."""

    rank: int
    node: str
    start: float
    end: float
    kind: str
    state: str
    mark: float | None = None


@dataclass(frozen=True)
class TimelineRow:
    """Positions are percent of the drawing's width."""

    label: str
    title: str
    left: float
    width: float
    kind: str
    state: str
    mark: float | None
    count: int


@dataclass(frozen=True)
class Timeline(Block):
    """`ticks` are (percent, label); `hidden` counts ranks in rows that are not drawn."""

    rows: tuple[TimelineRow, ...]
    ticks: tuple[tuple[float, str], ...]
    hidden: int = 0


#: How a rank ended, worst first: the order of rows, and a class of the style sheet each.
KINDS = ("root", "suspect", "failed", "stopped", "unknown", "running", "finished")


def timeline(spans: Sequence[TimelineSpan]) -> Timeline | None:
    """None where no rank has a time."""
    if not spans:
        return None
    first = min(span.start for span in spans)
    whole = max(max(span.end for span in spans) - first, 1e-3)
    groups = _groups(spans, whole, fold=len(spans) > FOLD_ABOVE)
    rows = [_row(group, first, whole) for group in groups]
    hidden = sum(row.count for row in rows[MOST_ROWS:])
    return Timeline(tuple(rows[:MOST_ROWS]), tuple(_ticks(whole)), hidden)


def _groups(spans: Sequence[TimelineSpan], whole: float, *, fold: bool) -> list[list[TimelineSpan]]:
    if not fold:
        return [[span] for span in sorted(spans, key=lambda s: s.rank)]
    same: dict[tuple[str, str, int, int], list[TimelineSpan]] = {}
    for span in sorted(spans, key=lambda s: s.rank):
        start, end = round(span.start / whole / _ALIKE), round(span.end / whole / _ALIKE)
        same.setdefault((span.kind, span.state, start, end), []).append(span)
    return sorted(same.values(), key=lambda group: (KINDS.index(group[0].kind), len(group), group[0].rank))


def _row(group: list[TimelineSpan], first: float, whole: float) -> TimelineRow:
    lead = group[0]
    ranks = fold_ranks(span.rank for span in group)
    label = f"rank {ranks}" if len(group) == 1 else f"{len(group)} ranks"
    nodes = list(dict.fromkeys(span.node for span in group))
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    marks = [span.mark for span in group if span.mark is not None]
    return TimelineRow(
        label=label,
        title=f"ranks {ranks} on {where}: {lead.state}, {lead.end - lead.start:.1f} s",
        left=100 * (lead.start - first) / whole,
        width=max(100 * (lead.end - lead.start) / whole, 0.4),
        kind=lead.kind,
        state=lead.state,
        mark=100 * (min(marks) - first) / whole if marks else None,
        count=len(group),
    )


def _ticks(whole: float) -> list[tuple[float, str]]:
    """About five round moments, labelled from the start of the first rank."""
    step = next((s for s in _steps() if whole / s <= 6), whole / 5)
    return [(100 * n * step / whole, _clock(n * step, step)) for n in range(int(whole / step) + 1)]


def _steps() -> list[float]:
    small = [m * 10.0**e for e in range(-3, 1) for m in (1, 2, 5)]
    return [*small, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800]


def _clock(seconds: float, step: float) -> str:
    if step < 1:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if step >= 3600:
        return f"{hours} h"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}" if step >= 1 else f"{rest} s"


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
