"""Find stacks that hold more from step to step: a leak grows for as long as the trace goes on; a cache, once.

Sampled where steps end, so that what rises and falls within a step does not count. Without the ends of steps nothing
is said: the layers of one forward pass fill memory just as a leak does. What each step makes anew (a batch, its logits)
grows where the inputs do (sequences sorted by length, a curriculum): then so does all that a step needs in passing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import Leak, warm_up
from distdbg.evidence.memory.levels import Levels, highest_between
from distdbg.evidence.memory.trace import MemoryTrace

_MOST_POINTS = 512
_MOST_LEAKS = 20


def leaks(trace: MemoryTrace, ends: Sequence[int], levels: Levels) -> tuple[tuple[Leak, ...], str]:
    """Ranked by how fast they grow; or why nothing can be said."""
    if not ends:
        return (), "fewer than 3 ends of steps show in the trace (an optimizer's step, a turn from backward to forward)"
    bounds = thinned(ends)
    warm = warm_up(len(bounds))
    if len(bounds) - warm < thresholds.LEAK_STEPS:
        return (), f"the trace has {len(bounds)} steps: a trend needs {thresholds.LEAK_STEPS} after the first"
    worth = max(thresholds.LEAK_BYTES, int(levels.active_after(levels.peak) * thresholds.LEAK_SHARE))
    steps_a_point = len(ends) / len(bounds)
    # the peak of each stretch between two boundaries, above what is allocated at its end
    highest = zip(highest_between(levels, bounds), bounds, strict=True)
    passing = _rise([most - levels.active_after(bound) for most, bound in highest][warm:])
    found: list[Leak] = []
    longer: list[tuple[int, int]] = []
    for group, points, count, most in _series(trace, bounds):
        grown = points[-1] - points[warm]
        if grown >= worth and grows(points[warm:]):
            if most <= thresholds.ANEW and passing >= thresholds.IN_PASSING * _rise(points[warm:]):
                longer.append((grown, group))
                continue
            slope = grown / ((len(points) - 1 - warm) * steps_a_point)
            found.append(Leak(group, slope, grown, count, tuple(points)))
    ranked = tuple(sorted(found, key=lambda leak: -leak.slope)[:_MOST_LEAKS])
    return ranked, _longer(trace, [group for _, group in sorted(longer, reverse=True)]) if longer and not ranked else ""


def _rise(points: Sequence[int]) -> float:
    third = max(1, len(points) // 3)
    return (sum(points[-third:]) - sum(points[:third])) / third


def _longer(trace: MemoryTrace, groups: Sequence[int]) -> str:
    label = trace.stacks.groups[groups[0]].label
    more = f" (and {len(groups) - 1} more)" if len(groups) > 1 else ""
    return (
        f"what {label}{more} makes anew in each step becomes larger, and so does what a step needs beside it: longer "
        "inputs do that, and a tensor that is made longer with each step"
    )


def thinned(ends: Sequence[int]) -> list[int]:
    """At most so many of them, evenly."""
    if len(ends) <= _MOST_POINTS:
        return list(ends)
    return [ends[(n + 1) * len(ends) // _MOST_POINTS - 1] for n in range(_MOST_POINTS)]


def grows(points: Sequence[int]) -> bool:
    """Rises in every third of it, in several places, and hardly ever falls."""
    third = max(1, len(points) // 3)
    means = [sum(part) / len(part) for part in (points[:third], points[third : 2 * third], points[2 * third :]) if part]
    rises = sum(b > a for a, b in pairwise(points))
    fallen = sum(a - b for a, b in pairwise(points) if a > b)
    grown = points[-1] - points[0]
    parts = [points[0], points[third], points[2 * third] if 2 * third < len(points) else points[-1], points[-1]]
    steady = all(b - a >= grown / 8 for a, b in pairwise(parts))
    return all(b > a for a, b in pairwise(means)) and rises >= 3 and fallen <= grown / 4 and steady


def _series(trace: MemoryTrace, bounds: Sequence[int]) -> Iterator[tuple[int, list[int], int, int]]:
    """(group, bytes at each boundary, allocations that cross one, and how many any of them crosses) for each stack that
    holds anything at any."""
    width = len(bounds)
    found: dict[int, list[int]] = {}
    counts: dict[int, int] = {}
    crossed: dict[int, int] = {}
    before = _lookup(bounds, trace.events)
    for birth, death, size, group in zip(trace.birth, trace.death, trace.size, trace.group, strict=True):
        begin, end = before[birth] if birth >= 0 else 0, before[death]
        if begin < end:
            changes = found.get(group)
            if changes is None:
                changes = found[group] = [0] * (width + 1)
            changes[begin] += size
            changes[end] -= size
            counts[group] = counts.get(group, 0) + 1
            if end - begin > crossed.get(group, 0):
                crossed[group] = end - begin
    for group, changes in found.items():
        if group != trace.stacks.before:
            yield group, list(accumulate(changes[:-1])), counts[group], crossed[group]


def _lookup(bounds: Sequence[int], events: int) -> array[int]:
    """For each event the number of boundaries before it, which is the index of the first boundary after it."""
    table = array("i", bytes(4 * (events + 2)))
    for bound in bounds:
        table[bound + 1] += 1
    return array("i", accumulate(table))
