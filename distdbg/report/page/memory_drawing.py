"""Compute the drawings of a memory page: memory over time as areas, and a map of the segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from distdbg.evidence.memory.answer import Columns, MemoryAnswer, OomVerdict, gib
from distdbg.evidence.memory.digest import place_of
from distdbg.report.page import curves

WIDTH, HEIGHT = 1070.0, 320.0
HUES = 12
#: A picture without a script has fewer columns; the script draws all of them.
_STILL_COLUMNS = 192
_TAPE_ROWS = 12
_TAPE_ROW = 26.0
_TAPE_GAP = 2.0
_SPARK = (220.0, 34.0)


@dataclass(frozen=True)
class Area:
    d: str
    hue: int
    title: str
    row: int


@dataclass(frozen=True)
class Still:
    """The areas from the bottom upwards, the line of reserved memory, the peak's place, marks of the scale.

    A column is drawn as wide as the events that it stands for: a peak of a single event has an area of its own.
    """

    areas: tuple[Area, ...]
    reserved: str
    peak: tuple[float, float]
    marks: tuple[tuple[float, str], ...]
    #: the words at both ends of the axis
    begin: str
    end: str


def still(answer: MemoryAnswer) -> Still:
    columns = answer.overview
    shown = _highest(columns)
    top = max(*columns.reserved, answer.peak.active, 1)

    def y(size: int) -> float:
        return HEIGHT - HEIGHT * size / top

    def stairs(level: Sequence[int]) -> list[tuple[float, float]]:
        wide = WIDTH / len(shown)
        return [(wide * (n + side), y(level[column])) for n, column in enumerate(shown) for side in (0, 1)]

    below = [0] * len(columns.t)
    areas = []
    for n, row in enumerate(columns.bytes):
        above = [b + r for b, r in zip(below, row, strict=True)]
        if any(row):
            drawn = curves.between(stairs(above), stairs(below))
            rest = n == len(columns.stacks)
            label = "all other stacks" if rest else answer.stacks[columns.stacks[n]].label
            areas.append(Area(drawn, -1 if rest else n % HUES, f"{label}: up to {gib(max(row))}", n))
        below = above
    peak = WIDTH * (shown.index(place_of(columns, answer.peak.event)) + 0.5) / len(shown)
    return Still(
        areas=tuple(areas),
        reserved=curves.line(stairs(columns.reserved)),
        peak=(peak, y(answer.peak.active)),
        marks=tuple((y(size), gib(size)) for size in scale(top)),
        begin=f"event {max(0, columns.first)}",
        end=f"event {columns.last}" + (f", {answer.seconds:.3f} s" if answer.seconds else ""),
    )


def _highest(columns: Columns) -> list[int]:
    """The columns to draw: the highest of each interval."""
    totals = [sum(column) for column in zip(*columns.bytes, strict=True)]
    count = min(len(totals), _STILL_COLUMNS)
    bounds = [n * len(totals) // count for n in range(count + 1)]
    return [max(range(a, b), key=lambda column: totals[column]) for a, b in pairwise(bounds)]


def scale(top: int) -> list[int]:
    """Three to six round sizes below the top."""
    step = 1
    while top / step > 6:
        step *= 2
    return [step * n for n in range(1, int(top / step) + 1)]


def data(answer: MemoryAnswer) -> dict[str, Any]:
    """What the script draws from."""
    numbers = answer.overview.stacks if answer.detail is None else (*answer.overview.stacks, *answer.detail.stacks)
    shown = list(dict.fromkeys(numbers))
    at = {stack: n for n, stack in enumerate(shown)}
    return {
        "stacks": [
            {"label": s.label, "phase": s.phase, "callers": s.callers[:6], "frames": s.frames[:40]}
            for s in (answer.stacks[n] for n in shown)
        ],
        "views": [_view(answer, c, at) for c in (answer.overview, answer.detail) if c is not None],
    }


def _view(answer: MemoryAnswer, columns: Columns, at: dict[int, int]) -> dict[str, Any]:
    return {
        "first": columns.first,
        "last": columns.last,
        "stacks": [at[s] for s in columns.stacks],
        "rows": [_packed(row) for row in columns.bytes],
        "reserved": _packed(columns.reserved),
        "t": _steps([round(1e6 * t) for t in columns.t]),
        "peak": place_of(columns, answer.peak.event) if columns.first <= answer.peak.event <= columns.last else -1,
    }


def _packed(row: Sequence[int]) -> list[int]:
    """KiB, as differences: most of them are 0."""
    return _steps([size >> 10 for size in row])


def _steps(values: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip((0, *values), values, strict=False)]


# -- segments -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentPiece:
    x: float
    y: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class SegmentMap:
    pieces: tuple[SegmentPiece, ...]
    height: float
    row: float


def segment_map(oom: OomVerdict) -> SegmentMap:
    """All segments in a row, wrapped into lines; a gap separates two segments."""
    total = sum(segment.size for segment in oom.segments)
    room = WIDTH * _TAPE_ROWS - _TAPE_GAP * len(oom.segments)
    unit = max(room, WIDTH) / max(total, 1)
    pieces: list[SegmentPiece] = []
    at = 0.0
    for segment in oom.segments:
        pool = "small requests" if segment.small else "large requests"
        where = f"segment of {gib(segment.size)} for {pool}, stream {segment.stream}"
        for _, size, state in segment.spans:
            kind = "spare" if state == "free" and not segment.usable else state
            words = f"{kind_words(kind)} {gib(size)} in a {where}"
            pieces += _wrapped(at, at + size * unit, kind, words)
            at += size * unit
        at += _TAPE_GAP
    rows = max((piece.y for piece in pieces), default=0.0)
    return SegmentMap(tuple(pieces), rows + _TAPE_ROW, _TAPE_ROW - 8)


def kind_words(kind: str) -> str:
    return {"free": "free:", "spare": "free, not for this request:", "pending": "freed, in use by a stream:"}.get(
        kind, "used:"
    )


def _wrapped(begin: float, end: float, kind: str, words: str) -> list[SegmentPiece]:
    out = []
    while begin < end - 1e-6:
        row = int(begin / WIDTH + 1e-9)
        stop = min(end, (row + 1) * WIDTH)
        if stop - begin >= 0.05:
            out.append(SegmentPiece(begin - row * WIDTH, row * _TAPE_ROW, stop - begin, kind, words))
        begin = stop
    return out


def spark(answer: MemoryAnswer, top: int) -> str:
    """Active memory over the trace, small, at a scale that all ranks share."""
    width, height = _SPARK
    rows = answer.overview.bytes
    totals = [sum(column) for column in zip(*rows, strict=True)]
    step = max(1, len(totals) // 110)
    points = [max(totals[n : n + step]) for n in range(0, len(totals), step)]
    last = max(1, len(points) - 1)
    drawn = [(width * n / last, height - height * p / top) for n, p in enumerate(points)]
    return curves.below(drawn, height)
