"""Find requests that made torch reserve more after the warm-up, and blocks that keep it from giving that back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import SegmentsOf
from distdbg.evidence.memory.trace import MemoryTrace, Segment, living_at

#: each segment at the trace's end, with the bytes in it by stack
Inside = list[tuple[Segment, dict[int, int]]]
_GROW = ("segment_alloc", "segment_map")
_MOST = 5


def asked_for(trace: MemoryTrace, after: int) -> tuple[SegmentsOf, ...]:
    """The segments that the device was asked for after an event, by stack, most bytes first."""
    return _most((r.group, r.size) for r in trace.rare if r.action in _GROW and r.at > after)


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
    return _most(found)


def standing_empty(inside: Inside) -> int:
    """Bytes in segments that torch gives back before it lets a request fail, at the end: of whole ones in which
    nothing is, and of the free parts of expandable ones."""
    return sum(
        segment.size - sum(by_group.values()) for segment, by_group in inside if segment.expandable or not by_group
    )


def _most(found: Iterable[tuple[int, int]]) -> tuple[SegmentsOf, ...]:
    totals: dict[int, Sequence[int]] = {}
    for group, size in found:
        bytes_, count = totals.get(group, (0, 0))
        totals[group] = bytes_ + size, count + 1
    order = sorted(totals, key=lambda group: -totals[group][0])[:_MOST]
    return tuple(SegmentsOf(group, *totals[group]) for group in order)
