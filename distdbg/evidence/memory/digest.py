"""Reduce active memory over time by stack to few columns for a page, each at its highest moment."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from distdbg.evidence.memory.answer import Columns
from distdbg.evidence.memory.levels import Levels, seconds_at
from distdbg.evidence.memory.trace import MemoryTrace

MOST_COLUMNS = 768
MOST_STACKS = 40


class Digest:
    """All stacks by column; `columns` keeps those that matter."""

    def __init__(self, trace: MemoryTrace, found: Levels, first: int, last: int) -> None:
        """Events `first` to `last`, both included; -1 is the state before the first event."""
        self.trace, self.found, self.first, self.last = trace, found, first, last
        self.samples = _samples(found, first, last)
        self.rows = self._rows()

    def _rows(self) -> dict[int, list[int]]:
        """Bytes of each stack at each sample."""
        trace, width = self.trace, len(self.samples)
        before = _before(self.samples, self.first, self.last)
        first, last = self.first, self.last
        changes: dict[int, list[int]] = {}
        for birth, death, size, group in zip(trace.birth, trace.death, trace.size, trace.group, strict=True):
            begin = before[birth - first] if first < birth <= last else 0 if birth <= first else width
            end = before[death - first] if first < death <= last else 0 if death <= first else width
            if begin < end:
                row = changes.get(group)
                if row is None:
                    row = changes[group] = [0] * (width + 1)
                row[begin] += size
                row[end] -= size
        return {group: list(accumulate(row[:-1])) for group, row in changes.items()}

    def columns(self, stacks: Sequence[int]) -> Columns:
        """`stacks` from the bottom of the picture upwards; all others are one row above them."""
        shown = [s for s in stacks if s in self.rows][:MOST_STACKS]
        active = [self.found.active_after(e) for e in self.samples]
        rows = [tuple(self.rows[s]) for s in shown]
        sums = [sum(column) for column in zip(*rows, strict=True)] or [0] * len(active)
        rest = tuple(total - held for total, held in zip(active, sums, strict=True))
        return Columns(
            self.first,
            self.last,
            tuple(shown),
            (*rows, rest),
            tuple(self.found.reserved_after(e) for e in self.samples),
            tuple(round(seconds_at(self.trace, e) or 0.0, 6) for e in self.samples),
        )

    def weights(self) -> list[int]:
        """The stacks by what they hold at their highest, the largest first."""
        return sorted(self.rows, key=lambda g: -max(self.rows[g]))

    def without(self, group: int) -> int:
        """The highest column if this stack held nothing."""
        own = self.rows.get(group)
        if own is None:
            return max(self.found.active_after(e) for e in self.samples)
        return max(self.found.active_after(e) - held for e, held in zip(self.samples, own, strict=True))


def _samples(found: Levels, first: int, last: int) -> list[int]:
    """The event of the highest level in each of equal stretches."""
    count = last - first + 1
    width = min(MOST_COLUMNS, count)
    samples = []
    for n in range(width):
        begin, end = first + n * count // width, first + (n + 1) * count // width
        part = found.active_between(begin, end - 1)
        samples.append(begin + part.index(max(part)))
    return samples


def _before(samples: Sequence[int], first: int, last: int) -> Sequence[int]:
    """The number of samples before each event from `first` on."""
    table = array("i", bytes(4 * (last - first + 2)))
    for sample in samples:
        table[sample - first + 1] += 1
    return array("i", accumulate(table))


def window(found: Levels, peak: int) -> tuple[int, int] | None:
    """The events around the peak that a second picture shows one by one; None where the first one does."""
    events = len(found.active) - 1
    if events <= 2 * MOST_COLUMNS:
        return None
    half = MOST_COLUMNS // 2
    first = max(0, min(peak - half, events - MOST_COLUMNS))
    return first, first + MOST_COLUMNS - 1


def place_of(columns: Columns, event: int) -> int:
    """The column an event is in."""
    count, width = columns.last - columns.first + 1, len(columns.t)
    bounds = [columns.first + n * count // width for n in range(width)]
    return max(0, bisect_left(bounds, event + 1) - 1)
