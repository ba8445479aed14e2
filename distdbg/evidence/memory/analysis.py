"""Analyse a snapshot, read as plain containers, device by device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from distdbg.evidence.memory.answer import (
    Columns,
    MemoryAnswer,
    Moment,
    OomVerdict,
    SegmentsOf,
    StackInfo,
    warm_up,
)
from distdbg.evidence.memory.digest import Digest, window
from distdbg.evidence.memory.expandable import reserved_if_expandable
from distdbg.evidence.memory.leaks import leaks, thinned
from distdbg.evidence.memory.levels import MOST_HOLDERS, highest_between, levels, moment, seconds_at, steps
from distdbg.evidence.memory.oom import out_of_memory
from distdbg.evidence.memory.segments import asked_for, inside_segments, kept_open, standing_empty
from distdbg.evidence.memory.stacks import AllocationStack, place
from distdbg.evidence.memory.trace import MemoryTrace, read_snapshot

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
