"""Make SVG paths of curves: a line, the area below it, the area between two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Points = Sequence[tuple[float, float]]


def line(points: Points) -> str:
    return f"M{_joined(points)}"


def below(points: Points, floor: float) -> str:
    """Down to `floor`."""
    return f"M{_joined([(points[0][0], floor), *points, (points[-1][0], floor)])}Z"


def between(upper: Points, lower: Points) -> str:
    return f"M{_joined([*upper, *reversed(lower)])}Z"


def _joined(points: Iterable[tuple[float, float]]) -> str:
    """Join points with a precision of a tenth of a unit, less than a point on any screen."""
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in points)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
