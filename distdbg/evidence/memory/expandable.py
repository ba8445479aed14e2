"""Compute how much the allocator would have reserved with expandable segments: the same requests, in the same order.

The rules are torch's (c10/cuda/CUDACachingAllocator.cpp): of each stream, pool and size class there is one range of
addresses that grows by pages; a request takes the smallest free block that is large enough, at the lowest address, and
what is left of the block stays free. Pages are given back only when the device is full, which is not computed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from distdbg.evidence.memory.oom import LARGE_SEGMENT, SMALL, SMALL_SEGMENT
from distdbg.evidence.memory.trace import GRAIN, MemoryTrace

#: Longer traces take longer than a reader waits: some 3 us an event.
_MOST_EVENTS = 1_000_000
_Key = tuple[int, str, bool]


def reserved_if_expandable(trace: MemoryTrace) -> int | None:
    """Bytes at most; None where the trace has not seen all allocations, or its segments are expandable already."""
    whole = trace.events and not trace.start and not trace.unknown_frees
    if not whole or trace.events > _MOST_EVENTS or any(segment.expandable for segment in trace.segments):
        return None
    ranges: dict[_Key, _Range] = {}
    placed: dict[int, tuple[_Range, int, int]] = {}
    reserved = most = 0
    for number, key in _in_order(trace):
        if key is None:
            held, address, size = placed.pop(number)
            held.give_back(address, size)
            continue
        held = ranges.setdefault(key, _Range(SMALL_SEGMENT if key[2] else LARGE_SEGMENT))
        size = -(-max(trace.size[number], 1) // GRAIN) * GRAIN
        before = held.mapped
        placed[number] = held, held.take(size), size
        reserved += held.mapped - before
        most = max(most, reserved)
    return most


def _in_order(trace: MemoryTrace) -> Iterator[tuple[int, _Key | None]]:
    """Allocations, with their stream, pool and size class, and frees, with None."""
    ends = sorted((death, number) for number, death in enumerate(trace.death) if death < trace.events)
    segments, starts = _Segments(trace), 0
    for number, birth in enumerate(trace.birth):
        while starts < len(ends) and ends[starts][0] < birth:
            yield ends[starts][1], None
            starts += 1
        stream, pool = segments.of(birth, trace.address[number])
        yield number, (stream, pool, trace.size[number] <= SMALL)


class _Segments:
    """Which stream and pool an address belongs to: the segments are made and given back as the trace goes on."""

    def __init__(self, trace: MemoryTrace) -> None:
        self._events = [r for r in trace.rare if r.action in ("segment_alloc", "segment_free")]
        self._next = 0
        self._starts: list[int] = []
        self._live: dict[int, tuple[int, str]] = {}

    def of(self, event: int, address: int) -> tuple[int, str]:
        while self._next < len(self._events) and self._events[self._next].at <= event:
            segment = self._events[self._next]
            self._next += 1
            if segment.action == "segment_alloc":
                insort(self._starts, segment.address)
                self._live[segment.address] = segment.stream, segment.pool
            elif self._live.pop(segment.address, None) is not None:
                del self._starts[bisect_left(self._starts, segment.address)]
        place = bisect_right(self._starts, address) - 1
        return self._live[self._starts[place]] if place >= 0 else (0, "")


class _Range:
    """A growing range of addresses from 0 on."""

    def __init__(self, page: int) -> None:
        self.mapped = 0
        self._page = page
        self._by_size: list[tuple[int, int]] = []  # (size, address) of free blocks
        self._sizes: dict[int, int] = {}  # by address
        self._begins: dict[int, int] = {}  # by the address at which the block ends

    def take(self, size: int) -> int:
        place = bisect_left(self._by_size, (size, 0))
        if place < len(self._by_size):
            free, address = self._by_size[place]
        else:  # the range grows, behind the free block at its end
            address = self._begins.get(self.mapped, self.mapped)
            free = -(-(address + size - self.mapped) // self._page) * self._page + self.mapped - address
            self.mapped = address + free
        if address in self._sizes:
            self._remove(address)
        if free > size:
            self._add(address + size, free - size)
        return address

    def give_back(self, address: int, size: int) -> None:
        before = self._begins.get(address)
        if before is not None:
            size += self._remove(before)
            address = before
        if address + size in self._sizes:
            size += self._remove(address + size)
        self._add(address, size)

    def _add(self, address: int, size: int) -> None:
        insort(self._by_size, (size, address))
        self._sizes[address] = size
        self._begins[address + size] = address

    def _remove(self, address: int) -> int:
        size = self._sizes.pop(address)
        del self._by_size[bisect_left(self._by_size, (size, address))]
        del self._begins[address + size]
        return size
