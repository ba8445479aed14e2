"""Compute the drawing of the last collectives: a column for each sequence number, late ranks further right in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.diagnosis.waits.collectives import GroupTimeline, Lane, Op
from distdbg.evidence.rank_set import RankSet
from distdbg.report.text.collectives_text import group_words, lane_words, letter, was_begun
from distdbg.wording import duration

WIDTH = 1070.0
_LABEL, _STATE, ROW, _TOP = 160.0, 210.0, 24.0, 22.0
_MOST_GROUPS = 6
_MOST_LANES = 24
#: A spread smaller than this is drawn as none: it is noise.
_LEAST_SPREAD_S = 0.02
HUES = 6


@dataclass(frozen=True, slots=True)
class OperationBar:
    """`hue` counts the operations of the legend; kinds: done, open, absent."""

    x: float
    y: float
    width: float
    kind: str
    hue: int
    odd: bool
    text: str
    title: str


@dataclass(frozen=True, slots=True)
class LaneRow:
    y: float
    label: str
    title: str
    state: str
    culprit: bool
    bars: tuple[OperationBar, ...]


@dataclass(frozen=True, slots=True)
class GroupDrawing:
    """`heads` are (x, text) above the columns, `times` below them: how long before the dump a column began."""

    title: str
    legend: tuple[tuple[int, str, str], ...]
    rows: tuple[LaneRow, ...]
    heads: tuple[tuple[float, str], ...]
    times: tuple[tuple[float, str], ...]
    height: float
    hidden: int
    hosts: int


def draw_groups(timelines: Sequence[GroupTimeline], culprits: RankSet) -> tuple[list[GroupDrawing], int]:
    """Those that are stuck, or the first where none is; and how many groups are not drawn."""
    stuck = [timeline for timeline in timelines if timeline.stuck] or list(timelines[:1])
    drawn = stuck[:_MOST_GROUPS]
    return [_draw(timeline, culprits) for timeline in drawn], sum(1 + s.alike for s in timelines) - sum(
        1 + s.alike for s in drawn
    )


def _draw(timeline: GroupTimeline, culprits: RankSet) -> GroupDrawing:
    step = (WIDTH - _LABEL - _STATE) / max(len(timeline.columns), 1)
    lanes = sorted(timeline.lanes, key=lambda lane: not (lane.ranks & culprits))[:_MOST_LANES]
    begins = _begins(timeline)
    spread = max([_offset(op, n, lane, begins) for lane in lanes for n, op in enumerate(lane.ops) if op], default=0.0)
    rows = []
    for number, lane in enumerate(lanes):
        y = _TOP + number * ROW
        bars = [
            _bar(
                op,
                n,
                timeline,
                lane,
                (y, step, _offset(op, n, lane, begins) / max(spread, _LEAST_SPREAD_S) if op else 0),
            )
            for n, op in enumerate(lane.ops)
        ]
        title = f"{lane.ranks.words(400)} on {', '.join(lane.hosts[:6])}"
        state = lane_words(lane, timeline)
        rows.append(LaneRow(y, lane.ranks.words(18), title, state, bool(lane.ranks & culprits), tuple(bars)))
    xs = [_LABEL + n * step + step / 2 for n in range(len(timeline.columns))]
    return GroupDrawing(
        title=group_words(timeline),
        legend=tuple((n % HUES, letter(n), what) for n, what in enumerate(timeline.legend)),
        rows=tuple(rows),
        heads=tuple((x, f"#{n}") for x, n in zip(xs, timeline.columns, strict=True)),
        times=tuple((x, _before(timeline.t - t)) for x, t in zip(xs, _first(timeline), strict=True) if t),
        height=_TOP + len(rows) * ROW + 20,
        hidden=len(timeline.lanes) - len(lanes),
        hosts=len(timeline.hosts),
    )


def _before(seconds: float) -> str:
    """Fine enough to tell two columns apart."""
    return f"−{seconds:.2f} s" if 0 <= seconds < 1000 else f"−{duration(max(0.0, seconds))}"


def _begins(timeline: GroupTimeline) -> dict[tuple[int, str], float]:
    """When a host's first rank began a column: only what one clock says is compared."""
    found: dict[tuple[int, str], float] = {}
    for lane in timeline.lanes:
        for number, op in enumerate(lane.ops):
            if op is not None and len(lane.hosts) == 1:
                key = (number, lane.hosts[0])
                found[key] = min(op.t, found.get(key, op.t))
    return found


def _offset(op: Op, number: int, lane: Lane, begins: dict[tuple[int, str], float]) -> float:
    return op.t - begins[number, lane.hosts[0]] if len(lane.hosts) == 1 else op.late_s


def _first(timeline: GroupTimeline) -> list[float]:
    columns = zip(*(lane.ops for lane in timeline.lanes), strict=True)
    return [min((op.t for op in column if op is not None), default=0.0) for column in columns]


def _bar(
    op: Op | None, number: int, timeline: GroupTimeline, lane: Lane, at: tuple[float, float, float]
) -> OperationBar:
    y, step, late = at
    x = _LABEL + number * step
    sequence = timeline.columns[number]
    if op is None:
        state = "begun, and not recorded which operation it was" if was_begun(lane, sequence) else "not begun"
        return OperationBar(x + 3, y + 4, step - 6, "absent", 0, odd=False, text="", title=f"#{sequence}: {state}")
    shift = min(late, 1.0) * step * 0.45
    words = [f"#{sequence} {timeline.legend[op.what]}", "finished" if op.done else "begun and not finished"]
    words += ["differs from what other ranks called"] if op.odd else []
    words += [f"{op.late_s:.2f} s later than the first of its node"] if op.late_s else []
    kind = "done" if op.done else "open"
    text = letter(op.what) + ("!" if op.odd else "")
    return OperationBar(x + 3 + shift, y + 4, step - 6 - shift, kind, op.what % HUES, op.odd, text, "\n".join(words))
