"""Judge an out-of-memory error: was memory really short, or only fragmented?

A snapshot shows the segments at its end. Between the error and that end segments were given back and made; taken
back one by one, latest first, they are what there was when the request failed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import OomVerdict, SegmentSpans
from distdbg.evidence.memory.levels import Levels
from distdbg.evidence.memory.trace import GRAIN, MemoryTrace, Rare, Segment, living_at

MIB = 1 << 20
#: torch's allocator: requests up to here come from small segments of 2 MiB
SMALL = 1 * MIB
SMALL_SEGMENT = 2 * MIB
#: up to here a large request makes a segment of 20 MiB; beyond, one of its own size in steps of 2 MiB. Expandable
#: segments grow by pages of these two sizes, large or small
_LARGE_REQUEST = 10 * MIB
LARGE_SEGMENT = 20 * MIB
_MOST_SEGMENTS = 160
_MOST_SPANS = 400
USED, PENDING, FREE = "used", "pending", "free"


@dataclass
class _Range:
    """Mapped memory: a segment, or a part of an expandable one."""

    start: int
    end: int
    of: Segment


def out_of_memory(trace: MemoryTrace, found: Levels, ends: Sequence[int] = ()) -> OomVerdict | None:
    """The last one in the trace; None where there was none. `ends` are the events after which steps are over."""
    events = [r for r in trace.rare if r.action == "oom"]
    if not events:
        return None
    event = events[-1]
    ranges = rewound(trace.segments, [r for r in trace.rare if r.at > event.at])
    small = event.size <= SMALL
    blocks = _blocks(trace, event.at)
    maps = [_map(r, blocks, _usable(r.of, event, small=small)) for r in ranges]
    free = [(size, m.usable) for m in maps for _, size, state in m.spans if state == FREE]
    usable = [size for size, fits in free if fits]
    reserved = sum(m.size for m in maps)
    expandable = any(r.of.expandable for r in ranges)
    needed = _needed(event.size, small=small, expandable=expandable)
    verdict, by = _verdict(event, needed, reserved, usable)
    pending = sum(size for m in maps for _, size, state in m.spans if state == PENDING)
    shown = _shown(maps)
    return OomVerdict(
        event=event.at,
        request=event.size,
        needed=needed,
        device_free=event.free,
        active=found.active_after(event.at),
        reserved=reserved,
        free_inside=sum(size for size, _ in free),
        free_usable=sum(usable),
        largest_hole=max(usable, default=0),
        pending=pending,
        verdict=verdict,
        by=by,
        expandable=expandable,
        stack=event.group,
        how_many=len(events),
        steps_after=sum(end > event.at for end in ends),
        segments=shown,
        more_segments=len(maps) - len(shown),
    )


def _needed(request: int, *, small: bool, expandable: bool) -> int:
    if small:
        return SMALL_SEGMENT
    step = LARGE_SEGMENT if expandable or request < _LARGE_REQUEST else SMALL_SEGMENT
    return -(-request // step) * step


def _verdict(event: Rare, needed: int, reserved: int, usable: Sequence[int]) -> tuple[str, int]:
    """`limited` where neither explains it: a limit of the process, or another rule of the allocator's. On a device that
    is full but for few holes, it is the device that had too little for what would have been asked of it."""
    holes, largest = sum(usable), max(usable, default=0)
    if event.free >= needed or largest >= event.size:
        return "limited", max(event.free, largest)
    spare = holes + event.free - event.size
    short = needed - event.free
    if holes and spare < 0:
        return "short", min(short, -(spare // SMALL_SEGMENT) * SMALL_SEGMENT)  # what it frees goes back in segments
    if holes >= max(thresholds.FRAGMENTED * (reserved + event.free), thresholds.FRAGMENTED_BYTES):
        return "fragmented", spare
    return "short", short


def _usable(segment: Segment, event: Rare, *, small: bool) -> bool:
    """Whether the allocator would have looked into it for this request: kind, stream and pool are its own each."""
    pools = event.pool in ("", segment.pool) or not segment.pool
    default = event.pool or segment.pool in ("", "(0, 0)")
    return segment.small == small and segment.stream == event.stream and pools and bool(default)


# -- segments as they were ----------------------------------------------------------------------------------------


def rewound(segments: Sequence[Segment], later: Iterable[Rare]) -> list[_Range]:
    """The mapped memory before the events `later`, which are in order of time."""
    ranges = {s.address: _Range(s.address, s.address + s.size, s) for s in segments}
    for event in sorted(later, key=lambda r: -r.at):
        if event.action == "segment_alloc":
            ranges.pop(event.address, None)
        elif event.action == "segment_free":
            ranges[event.address] = _Range(event.address, event.address + event.size, _gone(event))
        elif event.action == "segment_map":
            begin, end = event.address, event.address + event.size
            for r in [r for r in ranges.values() if r.start < end and r.end > begin]:
                del ranges[r.start]
                ranges |= {a: _Range(a, b, r.of) for a, b in ((r.start, begin), (end, r.end)) if a < b}
        elif event.action == "segment_unmap":
            _map_again(ranges, event)
    return [ranges[at] for at in sorted(ranges)]


def _gone(event: Rare, *, expandable: bool = False) -> Segment:
    """What was given back, by its size alone: pages for large requests are of 20 MiB."""
    small = event.size % LARGE_SEGMENT != 0 if expandable else event.size <= SMALL_SEGMENT
    return Segment(event.address, event.size, event.stream, small, expandable, event.pool)


def _map_again(ranges: dict[int, _Range], event: Rare) -> None:
    """Pages that lie beside each other in an expandable segment are one range again."""
    begin, end = event.address, event.address + event.size
    of = _gone(event, expandable=True)
    for r in [r for r in ranges.values() if r.of.expandable and (r.end == begin or r.start == end)]:
        del ranges[r.start]
        begin, end, of = min(begin, r.start), max(end, r.end), replace(r.of, size=0)
    ranges[begin] = _Range(begin, end, of)


# -- what they contain ------------------------------------------------------------------------------------------


@dataclass
class _Blocks:
    """Sorted by address, as the allocator rounded them."""

    address: list[int]
    size: list[int]
    state: list[str]


def _blocks(trace: MemoryTrace, event: int) -> _Blocks:
    whole = {b.address: b.size for s in trace.segments for b in s.blocks if b.state.startswith("active")}
    waiting = {(end, size) for since, end, size in trace.pending if since <= event < end}
    rows = []
    for n in living_at(trace, event):
        at, size = trace.address[n], trace.size[n]
        rounded = -(-size // GRAIN) * GRAIN
        kept = whole.get(at, 0) if trace.death[n] == trace.events else 0
        state = PENDING if (trace.death[n], size) in waiting else USED
        rows.append((at, max(rounded, kept), state))
    rows.sort()
    return _Blocks([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def _map(r: _Range, blocks: _Blocks, usable: bool) -> SegmentSpans:
    """Its spans in order, neighbours of one state as one."""
    spans: list[tuple[int, int, str]] = []

    def add(start: int, end: int, state: str) -> None:
        if end <= start:
            return
        if spans and spans[-1][2] == state:
            spans[-1] = (spans[-1][0], end - r.start - spans[-1][0], state)
        else:
            spans.append((start - r.start, end - start, state))

    at = r.start
    for n in range(bisect_left(blocks.address, r.start), len(blocks.address)):
        begin = blocks.address[n]
        if begin >= r.end:
            break
        add(at, begin, FREE)
        at = max(at, min(begin + blocks.size[n], r.end))
        add(begin, at, blocks.state[n])
    add(at, r.end, FREE)
    return SegmentSpans(r.start, r.end - r.start, r.of.stream, r.of.small, usable, tuple(spans))


def _shown(maps: list[SegmentSpans]) -> tuple[SegmentSpans, ...]:
    """Those with most to see, in the order of addresses; of too many spans the smallest gaps are closed."""
    chosen = sorted(maps, key=lambda m: (not m.usable, -m.size))[:_MOST_SEGMENTS]
    room = max(8, 8 * _MOST_SPANS // max(1, len(chosen)))
    return tuple(replace(m, spans=_fewer(m.spans, room)) for m in sorted(chosen, key=lambda m: m.address))


def _fewer(spans: tuple[tuple[int, int, str], ...], most: int) -> tuple[tuple[int, int, str], ...]:
    if len(spans) <= most:
        return spans
    least = sorted((size for _, size, state in spans if state == FREE), reverse=True)[: most // 2][-1:]
    out: list[tuple[int, int, str]] = []
    for offset, size, state in spans:
        kept = state if state != FREE or (least and size >= least[0]) else USED
        if out and out[-1][2] == kept:
            out[-1] = (out[-1][0], offset + size - out[-1][0], kept)
        else:
            out.append((offset, size, kept))
    return tuple(out[: 2 * most])
