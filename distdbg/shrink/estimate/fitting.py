"""Find what fits a card: the largest batch, the longest sequence, the most layers, with all else as requested.

Memory is convex in each of them (a sum of constants, lines and squares, the larger of two parts of a step): the line
through two numbers that fit promises too much beyond them, and the line between one that fits and one that does not
promises too little. So what the first rules out needs no look, and every answer has been tracked as it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from distdbg.errors import UsageError
from distdbg.shrink.estimate.estimating import MARGIN, Estimate, EstimateRequest, Sharding, ask_child, estimate

Axis = Literal["batch", "sequence", "layers"]
#: The largest fit is searched in steps of this size: sequences in tokens.
GRAIN: Mapping[Axis, int] = {"batch": 1, "sequence": 64, "layers": 1}
_MOST = 1 << 20
_MOST_ROUNDS = 10


@dataclass(frozen=True)
class LargestFit:
    """`largest` is 0 where not even the least fits, None where that could not be looked at, `because`.

    `own` is how many positions or layers the model has; more than `most` was not looked at.
    """

    axis: Axis
    largest: int | None
    own: int | None = None
    most: int = 0
    because: str = ""


@dataclass(frozen=True)
class TrackedSteps:
    """A step for each that was asked for, or `because` in its place; the positions and layers that the model has."""

    steps: tuple[Mapping[str, Any], ...]
    positions: int | None
    layers: int | None


def what_fits(
    source: str, wanted: EstimateRequest, ranks: int, fsdp: Sharding, room: int
) -> tuple[Estimate, list[LargestFit]]:
    """The estimate of what is wanted, and what fits `room` bytes. One child process; raises as `track` does."""
    answer = ask_child(source, wanted, ranks=ranks, fsdp=fsdp, room=room)
    return estimate(answer["step"], ranks, fsdp), [LargestFit(**one) for one in answer["fits"]]


def fits(
    wanted: EstimateRequest,
    ranks: int,
    fsdp: Sharding,
    room: int,
    look: Callable[[Sequence[EstimateRequest]], TrackedSteps],
) -> list[LargestFit]:
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
        tracked = look([EstimateRequest(**asdict(wanted) | {axis: number}) for axis, number in todo])
        for (axis, number), step in zip(todo, tracked.steps, strict=True):
            if "because" in step:
                refused[axis] = step["because"]
            else:
                known[axis][number] = int(estimate(step, ranks, fsdp).total * (1 + MARGIN))
        own = {"sequence": tracked.positions, "layers": tracked.layers}
        most = {"batch": _MOST, "sequence": own["sequence"] or _MOST, "layers": 2 * (own["layers"] or 1)}
        next_ones = ((axis, next_look(found, room, GRAIN[axis], most[axis])) for axis, found in known.items()
                     if axis not in refused)  # fmt: skip
        todo = [(axis, number) for axis, number in next_ones if number is not None]
        if not todo:
            break
    found = []
    for axis, sizes in known.items():
        largest = max((number for number, size in sizes.items() if size <= room), default=0)
        fit = LargestFit(axis, largest, own.get(axis), most[axis])
        found.append(LargestFit(axis, None, because=refused[axis]) if axis in refused else fit)
    return found


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


@dataclass(frozen=True)
class Card:
    name: str
    bytes: int


#: GiB that torch counts, "has a total capacity of" in its error messages: less than what is sold, as the driver and
#: the correction of errors have their part. Source beside each.
_KNOWN = {
    "T4": 14.75,  # https://github.com/hpcaitech/Open-Sora/issues/697
    "RTX4090": 23.52,  # https://github.com/Soul-AILab/SoulX-FlashTalk/issues/5
    "A100-40GB": 39.50,  # https://github.com/TianheWu/CoSeR/issues/10
    "L40": 44.40,  # https://github.com/QwenLM/Qwen3-VL/issues/2097
    "A100-80GB": 79.10,  # https://github.com/pixeli99/SVD_Xtend/issues/39
    "H100": 79.11,  # https://github.com/vllm-project/vllm/issues/27508
    "H200": 139.72,  # logs of several sites: 139.72 to 139.81
    "B200": 178.35,  # https://github.com/pytorch/ao/pull/4002
}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) *(?P<unit>[GM]i?B?)?", re.I)
_UNITS = {"g": 2**30, "gi": 2**30, "gib": 2**30, "gb": 10**9, "m": 2**20, "mi": 2**20, "mib": 2**20, "mb": 10**6}


def card(words: str) -> Card:
    """`80GiB`, `80` (GiB), `24GB` (of 10^9 bytes), `H100`. Raises UsageError for what is neither."""
    for name, gib in _KNOWN.items():
        if _plain(words) == _plain(name):
            return Card(name, int(gib * 2**30))
    match = _SIZE.fullmatch(words.strip())
    size = float(match["number"]) * _UNITS[(match["unit"] or "GiB").lower()] if match else 0.0
    if not 2**20 <= size < 2**63:
        raise UsageError(
            f"--card {words!r} is neither a size nor a card that is known here",
            f"Give GiB, such as 80GiB, or one of {', '.join(_KNOWN)}.",
        )
    return Card(words.strip() if match and match["unit"] else f"{words.strip()}GiB", int(size))


def _plain(words: str) -> str:
    return re.sub(r"[\s_-]", "", words).upper()
