"""Find the most that a rank allocated of its GPU, by torch's own maximum in the lines of memory.jsonl.

A line has what torch saw since the start, or since the script last reset it (Max_MA): the last one tells of the whole
run, a peak within a backward too, although lines are few and only some of a long file are read.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.evidence.memory.growth import MemorySeries


@dataclass(frozen=True)
class DevicePeak:
    """`step` is of the first line that has it, `before` of the line before that one, which had less."""

    bytes: int
    step: int
    before: int | None
    #: steps whose lines were read: how many, from where to where
    steps: int
    first: int
    last: int

    @property
    def when(self) -> str:
        if self.before is None:
            return f"by step {self.step}"
        return f"in step {self.step}" if self.step - self.before < 2 else f"between steps {self.before} and {self.step}"


def device_peak(series: MemorySeries) -> DevicePeak | None:
    """None where no line is about a GPU."""
    read = sorted({(p.step, p.highest) for p in (*series.course, *series.points) if p.highest})
    if not read:
        return None
    most = max(highest for _, highest in read)
    place = next(n for n, (_, highest) in enumerate(read) if highest == most)
    before = read[place - 1][0] if place else None
    return DevicePeak(most, read[place][0], before, len({step for step, _ in read}), read[0][0], read[-1][0])
