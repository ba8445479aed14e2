"""What fits a card: the largest batch, the longest sequence, the most layers, each with all else as it is asked for.

Memory is convex in each of them (a sum of constants, lines and squares, the larger of two parts of a step): the line
through two numbers that fit promises too much beyond them, and the line between one that fits and one that does not
promises too little. So what the first rules out needs no look, and every answer has been tracked as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from distdbg.shrink.estimate.estimating import MARGIN, Estimate, EstimateRequest, Sharding, ask_child, estimate

Axis = Literal["batch", "sequence", "layers"]
#: Sequences are told in steps of so many tokens.
GRAIN: Mapping[Axis, int] = {"batch": 1, "sequence": 64, "layers": 1}
_MOST = 1 << 20
_MOST_ROUNDS = 10


@dataclass(frozen=True)
class Fit:
    """`largest` is 0 where not even the least fits, None where that could not be looked at, `because`.

    `own` is how many positions or layers the model has; more than `most` was not looked at.
    """

    axis: Axis
    largest: int | None
    own: int | None = None
    most: int = 0
    because: str = ""


@dataclass(frozen=True)
class Looked:
    """A step for each that was asked for, or `because` in its place; the positions and layers that the model has."""

    steps: tuple[Mapping[str, Any], ...]
    positions: int | None
    layers: int | None


def what_fits(
    source: str, wanted: EstimateRequest, ranks: int, fsdp: Sharding, room: int
) -> tuple[Estimate, list[Fit]]:
    """The estimate of what is wanted, and what fits `room` bytes. One child process; raises as `track` does."""
    told = ask_child(source, wanted, ranks=ranks, fsdp=fsdp, room=room)
    return estimate(told["step"], ranks, fsdp), [Fit(**one) for one in told["fits"]]


def fits(
    wanted: EstimateRequest, ranks: int, fsdp: Sharding, room: int, look: Callable[[Sequence[EstimateRequest]], Looked]
) -> list[Fit]:
    """The largest of each axis whose estimate, with its margin, is within `room` bytes; layers up to twice its own."""
    known: dict[Axis, dict[int, int]] = {"batch": {}, "sequence": {}, "layers": {}}
    refused: dict[Axis, str] = {}
    own: dict[Axis, int | None] = {}
    most: dict[Axis, int] = {}
    todo: list[tuple[Axis, int]] = [
        *(("batch", n) for n in (1, wanted.batch + 1)),
        *(("sequence", n) for n in (max(2, wanted.sequence // 2), wanted.sequence)),
        *(("layers", n) for n in (1, 2)),
    ]  # fmt: skip
    for _ in range(_MOST_ROUNDS):
        told = look([_varied(wanted, axis, number) for axis, number in todo])
        for (axis, number), step in zip(todo, told.steps, strict=True):
            if "because" in step:
                refused[axis] = step["because"]
            else:
                known[axis][number] = int(estimate(step, ranks, fsdp).total * (1 + MARGIN))
        own = {"sequence": told.positions, "layers": told.layers}
        most = {"batch": _MOST, "sequence": own["sequence"] or _MOST, "layers": 2 * (own["layers"] or 1)}
        next_ones = ((axis, next_look(found, room, GRAIN[axis], most[axis])) for axis, found in known.items()
                     if axis not in refused)  # fmt: skip
        todo = [(axis, number) for axis, number in next_ones if number is not None]
        if not todo:
            break
    return [
        Fit(axis, None, because=refused[axis]) if axis in refused
        else Fit(axis, max((n for n, size in found.items() if size <= room), default=0), own.get(axis), most[axis])
        for axis, found in known.items()
    ]  # fmt: skip


def next_look(known: Mapping[int, int], room: int, grain: int, most: int) -> int | None:
    """Which number to look at next, of those known to need so many bytes; None where the largest is known. Pure."""
    fitting = sorted(n for n, size in known.items() if size <= room)
    over = sorted(n for n, size in known.items() if size > room)
    least = min(known) if fitting else grain
    low = fitting[-1] if fitting else least - grain
    high = over[0] if over else most + grain
    if high - low <= max(grain, low // 32):
        return None
    pair = [low, high] if fitting and over else fitting[-2:] if fitting else over[:2]
    a, b = pair[0], pair[-1]
    slope = (known[b] - known[a]) / (b - a) if b > a else 0.0
    guess = int(a + (room - known[a]) / slope) if slope > 0 else most
    if fitting and over:  # halves what is between them at least, on a scale of ratios
        guess = max(guess, math.isqrt(low * high))
    guess -= guess % grain
    if guess <= low and fitting and not over:
        return None
    return max(low + grain, min(guess, high - grain, most))


def _varied(wanted: EstimateRequest, axis: Axis, number: int) -> EstimateRequest:
    match axis:
        case "batch":
            return replace(wanted, batch=number)
        case "sequence":
            return replace(wanted, sequence=number)
    return replace(wanted, layers=number)
