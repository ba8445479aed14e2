"""Compute a chart of one value of many ranks over the steps: rows of small curves on one scale.

Few ranks have a row each. Of many there is one row for all, a band from the lowest to the highest with the median in
it, and a row for each of those that were furthest from the median, the furthest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from distdbg.model import grouped
from distdbg.report.page.curves import below, between, line

WIDTH, HEIGHT = 1000.0, 32.0
#: A part of the run is one point of a curve: its highest.
_COLUMNS = 125
#: Above the first all are one row; of the others so many are drawn, those that were so far from the median.
_EACH, _SHOWN, _APART = 16, 12, 0.05
#: Points above this quantile are drawn at the upper edge, if they are far above it.
_EDGE = 0.95
#: Of its points, the part in which a rank was furthest from the others.
_FURTHEST = 4
#: a curve's values by their column
_Columns = dict[int, float]


@dataclass(frozen=True)
class Curve:
    """One rank's: (step, value) in the order of steps, and the steps at which it was not finite."""

    who: str
    points: Sequence[tuple[int, float]]
    words: str
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class CurveRow:
    """`line` and `area` are paths in WIDTH x HEIGHT, empty where there is no value; `marks` are places in WIDTH."""

    label: str
    line: str
    area: str
    marks: tuple[float, ...]
    words: str


@dataclass(frozen=True)
class CurveChart:
    """`scale` and `note` are words beside its name."""

    name: str
    rows: tuple[CurveRow, ...]
    scale: str
    note: str


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    log: bool

    def y(self, value: float) -> float:
        part = (value - self.low) / ((self.high - self.low) or 1.0)
        if self.log:
            part = math.log(max(value, self.low) / self.low) / (math.log(self.high / self.low) or 1.0)
        return HEIGHT * (1 - 0.94 * min(1.0, max(0.0, part)) - 0.03)


def place(step: int, last: int) -> float:
    """The place of a step in WIDTH."""
    return WIDTH * min(max(step, 0), last) / max(last, 1)


def curve_chart(
    name: str, curves: Sequence[Curve], last: int, said: Callable[[float], str], *, log: bool = False
) -> CurveChart | None:
    """None where no rank has a value. `last` is the run's last step, `said` a value in words."""
    columns = [_columns(curve, last, log=log) for curve in curves]
    values = sorted(value for own in columns for value in own.values())
    if not values and not any(curve.marks for curve in curves):
        return None
    scale = _scale(values, log=log)
    drawn, note = list(zip(curves, columns, strict=True)), ""
    if len(curves) > _EACH:
        drawn, note = _outliers(drawn)
    rows = [_row(curve, own, scale, last) for curve, own in drawn]
    if len(curves) > _EACH and values:
        rows.insert(0, _together(columns, scale, said))
    return CurveChart(name, tuple(rows), _scale_words(scale, values, said), note)


def _columns(curve: Curve, last: int, *, log: bool) -> _Columns:
    found: _Columns = {}
    for step, value in curve.points:
        column = min(_COLUMNS - 1, max(0, step) * _COLUMNS // (last + 1))
        if value > 0 or not log:
            found[column] = max(value, found.get(column, value))
    return dict(sorted(found.items()))


def _scale(values: Sequence[float], *, log: bool) -> _Scale:
    """A scale from 0 up, unless it is logarithmic. A few values far above all others do not stretch it."""
    if not values:
        return _Scale(1.0, 10.0, log)
    if log:
        return _Scale(values[0], max(values[-1], values[0] * 10), log)
    usual, most = values[min(len(values) - 1, int(_EDGE * len(values)))], values[-1]
    low = min(0.0, values[0])
    return _Scale(low, max(most if most <= 2 * usual else 1.25 * usual, low + 1e-9), log)


def _scale_words(scale: _Scale, values: Sequence[float], said: Callable[[float], str]) -> str:
    if not values:
        return ""
    if scale.log:
        return f"{said(scale.low)} to {said(scale.high)}, logarithmic"
    above = f"; higher values, up to {said(values[-1])}, are at the edge" if values[-1] > scale.high else ""
    return f"{said(scale.low) if scale.low else 0} to {said(scale.high)}{above}"


def _row(curve: Curve, column: _Columns, scale: _Scale, last: int) -> CurveRow:
    points = [(_x(n), scale.y(value)) for n, value in column.items()]
    marks = tuple(dict.fromkeys(round(place(step, last), 1) for step in curve.marks))
    return CurveRow(curve.who, *_paths(points), marks, curve.words)


def _paths(points: list[tuple[float, float]]) -> tuple[str, str]:
    if len(points) == 1:  # a short stroke: a point has no length
        points = [points[0], (points[0][0] + WIDTH / _COLUMNS, points[0][1])]
    return (line(points), below(points, HEIGHT)) if points else ("", "")


def _x(column: int) -> float:
    return WIDTH * column / (_COLUMNS - 1)


# -- many ranks ---------------------------------------------------------------------------------------------------


def _by_column(columns: Iterable[_Columns]) -> dict[int, list[float]]:
    return dict(sorted(grouped(point for own in columns for point in own.items()).items()))


def _together(columns: Sequence[_Columns], scale: _Scale, said: Callable[[float], str]) -> CurveRow:
    by_column = _by_column(columns)
    middle = [median(values) for values in by_column.values()]
    upper = [(_x(n), scale.y(max(values))) for n, values in by_column.items()]
    lower = [(_x(n), scale.y(min(values))) for n, values in by_column.items()]
    drawn, _ = _paths([(_x(n), scale.y(value)) for n, value in zip(by_column, middle, strict=True)])
    count = sum(map(bool, columns))
    return CurveRow(f"{count:,} ranks", drawn, between(upper, lower), (), f"median {said(median(middle))}")


def _outliers(curves: Sequence[tuple[Curve, _Columns]]) -> tuple[list[tuple[Curve, _Columns]], str]:
    """The ranks to draw, and a sentence about them. A rank that was not finite is always drawn."""
    middle = {column: median(values) for column, values in _by_column(own for _, own in curves).items()}
    far = [(not curve.marks, -_distance(own, middle), n) for n, (curve, own) in enumerate(curves)]
    apart = [n for calm, near, n in sorted(far) if not calm or -near > math.log1p(_APART)]
    if not apart:
        return [], f"no rank was further than {100 * _APART:.0f} % from the median"
    more = len(apart) - _SHOWN
    words = f"; {more:,} more were further than {100 * _APART:.0f} % from it" if more > 0 else ""
    return [curves[n] for n in apart[:_SHOWN]], f"the ranks furthest from the median of all{words}"


def _distance(own: _Columns, middle: dict[int, float]) -> float:
    """The distance of a rank where it is largest, in natural logarithms, so that a late divergence is not averaged
    away."""
    found = sorted(abs(math.log(value / middle[n])) for n, value in own.items() if value > 0 and middle[n] > 0)
    kept = found[-max(1, len(found) // _FURTHEST) :] if found else [0.0]
    return sum(kept) / len(kept)
