"""Analyse a snapshot, read as plain containers, device by device."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import (
    Columns,
    Leak,
    MemoryAnswer,
    Moment,
    OomVerdict,
    SegmentsOf,
    StackInfo,
    warm_up,
)
from distdbg.evidence.memory.digest import Digest, window
from distdbg.evidence.memory.expandable import reserved_if_expandable
from distdbg.evidence.memory.growth import rises_evenly
from distdbg.evidence.memory.levels import MOST_HOLDERS, Levels, highest_between, levels, moment, seconds_at, steps
from distdbg.evidence.memory.oom import out_of_memory
from distdbg.evidence.memory.stacks import AllocationStack, place
from distdbg.evidence.memory.trace import MemoryTrace, Segment, living_at, read_snapshot

_MOST_PHASES = 400


def analyse(snapshot: object, holders: int = MOST_HOLDERS) -> list[MemoryAnswer]:
    """Takes the snapshot apart; of who holds what at the peak and at the end, `holders` are named each.

    Raises memory_trace.NotASnapshot.
    """
    return [analyse_trace(trace, holders) for trace in read_snapshot(snapshot)]


def analyse_trace(trace: MemoryTrace, holders: int = MOST_HOLDERS) -> MemoryAnswer:
    found = levels(trace)
    ends, ends_from = steps(trace, found)
    grown, why_not = leaks(trace, ends, found)
    digest = Digest(trace, found, -1, trace.events - 1) if trace.events else None
    peak = moment(trace, found, found.peak, _without(trace, digest, found.peak), holders)
    last = moment(trace, found, trace.events - 1, most=holders)
    oom = out_of_memory(trace, found, ends)
    if digest is None:
        overview, detail = Columns(0, 0, (), ((trace.start,),), (found.reserved_after(-1),), (0.0,)), None
    else:
        order, around = digest.weights(), window(found, found.peak)
        overview = digest.columns(order)
        detail = Digest(trace, found, *around).columns(order) if around else None
    bounds, inside = thinned(ends), inside_segments(trace)
    answer = MemoryAnswer(
        device=trace.device,
        events=trace.events,
        seconds=seconds_at(trace, trace.events - 1),
        start=trace.start,
        end=last.active,
        reserved_end=last.reserved,
        stacks=(),
        peak=peak,
        last=last,
        steps=len(ends),
        steps_from=ends_from,
        leaks=grown,
        leaks_unknown=why_not,
        oom=oom,
        at_oom=moment(trace, found, oom.event) if oom else None,
        overview=overview,
        detail=detail,
        dropped_blocks=trace.dropped_blocks,
        unknown_frees=trace.unknown_frees,
        reserved_by_step=tuple(found.reserved_after(end) for end in bounds),
        active_by_step=tuple(highest_between(found, bounds)),
        asked_for=asked_for(trace, bounds[warm_up(len(bounds)) - 1]) if bounds else (),
        kept_open=kept_open(inside),
        standing_empty=standing_empty(inside),
        phases=tuple(trace.phases[:_MOST_PHASES]),
        settings=trace.settings,
        expandable_reserved=reserved_if_expandable(trace),
    )
    return _numbered(answer, trace.stacks.groups)


def _without(trace: MemoryTrace, digest: Digest | None, peak: int) -> dict[int, int]:
    if digest is None:
        return {}
    standing = {trace.group[n] for n in range(len(trace.birth)) if trace.birth[n] <= peak < trace.death[n]}
    largest = [group for group in digest.weights() if group in standing][:8]
    return {group: digest.without(group) for group in largest}


# -- stacks are named once, and only those that something refers to -------------------------------------------------


def _numbered(answer: MemoryAnswer, groups: list[AllocationStack]) -> MemoryAnswer:
    numbers: dict[int, int] = {}

    def of(group: int) -> int:
        return numbers.setdefault(group, len(numbers))

    def numbered(found: tuple[SegmentsOf, ...]) -> tuple[SegmentsOf, ...]:
        return tuple(replace(segments, stack=of(segments.stack)) for segments in found)

    peak, last = _moment(answer.peak, of), _moment(answer.last, of)
    found = tuple(replace(leak, stack=of(leak.stack)) for leak in answer.leaks)
    oom: OomVerdict | None = replace(answer.oom, stack=of(answer.oom.stack)) if answer.oom else None
    at_oom = _moment(answer.at_oom, of) if answer.at_oom else None
    overview = _columns(answer.overview, of)
    detail = _columns(answer.detail, of) if answer.detail else None
    return replace(
        answer,
        peak=peak,
        last=last,
        leaks=found,
        oom=oom,
        at_oom=at_oom,
        overview=overview,
        detail=detail,
        asked_for=numbered(answer.asked_for),
        kept_open=numbered(answer.kept_open),
        stacks=tuple(_info(groups[g]) for g in numbers),
    )


def _moment(at: Moment, of: Callable[[int], int]) -> Moment:
    return replace(at, holders=tuple(replace(h, stack=of(h.stack)) for h in at.holders))


def _columns(columns: Columns, of: Callable[[int], int]) -> Columns:
    return replace(columns, stacks=tuple(of(s) for s in columns.stacks))


def _info(group: AllocationStack) -> StackInfo:
    own = group.user
    return StackInfo(
        label=group.label,
        callers=group.callers,
        frames=tuple(f"{file}:{line} {name}" for file, line, name in group.frames),
        phase=group.phase,
        file=own[0] if own else "",
        line=own[1] if own else 0,
        inner=place(group.frames[0]) if own and group.frames[0] != own else "",
    )


#: each segment at the trace's end, with the bytes in it by stack
Inside = list[tuple[Segment, dict[int, int]]]
_GROW = ("segment_alloc", "segment_map")
_MAX_SEGMENT_STACKS = 5


def asked_for(trace: MemoryTrace, after: int) -> tuple[SegmentsOf, ...]:
    """The segments that the device was asked for after an event, by stack, most bytes first."""
    return _rank_segments((r.group, r.size) for r in trace.rare if r.action in _GROW and r.at > after)


def inside_segments(trace: MemoryTrace) -> Inside:
    segments = sorted(trace.segments, key=lambda s: s.address)
    starts = [segment.address for segment in segments]
    inside: list[dict[int, int]] = [{} for _ in segments]
    for n in living_at(trace, trace.events - 1):
        place = bisect_right(starts, trace.address[n]) - 1
        if place >= 0 and trace.address[n] < starts[place] + segments[place].size:
            by_group = inside[place]
            by_group[trace.group[n]] = by_group.get(trace.group[n], 0) + trace.size[n]
    return list(zip(segments, inside, strict=True))


def kept_open(inside: Inside) -> tuple[SegmentsOf, ...]:
    """By stack, most bytes first: the free parts of segments that could be given back but for its blocks, at the end.

    Of an expandable segment any free page can. A hole that several stacks keep open counts for the one that has most
    in its segment.
    """
    found = []
    for segment, by_group in inside:
        used = sum(by_group.values())
        if by_group and used < thresholds.MOSTLY_HOLE * segment.size and not segment.expandable:
            found.append((max(by_group, key=lambda group: by_group[group]), segment.size - used))
    return _rank_segments(found)


def standing_empty(inside: Inside) -> int:
    """Bytes in segments that torch gives back before it lets a request fail, at the end: of whole ones in which
    nothing is, and of the free parts of expandable ones."""
    return sum(
        segment.size - sum(by_group.values()) for segment, by_group in inside if segment.expandable or not by_group
    )


def _rank_segments(found: Iterable[tuple[int, int]]) -> tuple[SegmentsOf, ...]:
    totals: dict[int, Sequence[int]] = {}
    for group, size in found:
        bytes_, count = totals.get(group, (0, 0))
        totals[group] = bytes_ + size, count + 1
    order = sorted(totals, key=lambda group: -totals[group][0])[:_MAX_SEGMENT_STACKS]
    return tuple(SegmentsOf(group, *totals[group]) for group in order)


_MOST_POINTS = 512
_MOST_LEAKS = 20


def leaks(trace: MemoryTrace, ends: Sequence[int], levels: Levels) -> tuple[tuple[Leak, ...], str]:
    """The stacks that hold more from step to step, fastest first; or why nothing can be said.

    Memory is sampled where steps end: the layers of one forward pass fill it just as a leak does.
    """
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
    """Whether the points rise in each third, in several places, and hardly ever fall."""
    third = max(1, len(points) // 3)
    means = [sum(part) / len(part) for part in (points[:third], points[third : 2 * third], points[2 * third :]) if part]
    rises = sum(b > a for a, b in pairwise(points))
    fallen = sum(a - b for a, b in pairwise(points) if a > b)
    ends = [points[0], points[third], points[2 * third] if 2 * third < len(points) else points[-1], points[-1]]
    return (
        all(b > a for a, b in pairwise(means))
        and rises >= thresholds.LEAK_RISES
        and fallen <= thresholds.LEAK_GIVEN_BACK * (points[-1] - points[0])
        and rises_evenly(ends, thresholds.LEAK_EVEN)
    )


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
