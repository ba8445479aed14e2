"""Read from a trace how busy a GPU was in its steps, and the reason of each gap between its kernels.

Busy is the time in which at least one kernel ran, on any stream. What the host did meanwhile explains a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from distdbg.evidence.jsonl import dicts, number
from distdbg.evidence.trace.calls import Site
from distdbg.evidence.trace.events import DeviceEvent
from distdbg.evidence.trace.phases import Step
from distdbg.evidence.trace.spans import Span, Spans, length, overlap, union, within, without

#: A launch takes the host some 5 to 10 us: kernels shorter than that leave gaps however fast it launches them.
SHORT_KERNEL_US = 10.0
_SHORT_GAP_US = 20.0
#: Why a device was idle, in the order in which the time of a gap is attributed.
REASONS = ("data wait", "synchronisation", "transfers", "allocations", "small kernels", "host")
#: Of sites (trace_calls.py), by the reason that they are.
_KINDS = {"synchronisation": ("wait",), "transfers": ("transfer", "blocking"), "allocations": ("alloc",)}


@dataclass(frozen=True)
class Device:
    """The typical step on a device. `idle` is the share of the step's time by reason; with `busy` it sums to 1."""

    number: int
    busy: float
    idle: Mapping[str, float]
    kernels_per_step: float
    kernel_median_us: float
    gaps_per_step: float
    longest_gap_us: float
    #: share of the kernels that are shorter than a launch
    short: float


def copies_from(memory: str, events: Iterable[DeviceEvent]) -> frozenset[int]:
    """Correlations of the copies to the device from `Pageable` or `Pinned` memory, as CUDA names them."""
    copies = (e for e in events if e.category == "gpu_memcpy" and "HtoD" in e.name and memory in e.name)
    return frozenset(e.correlation for e in copies if e.correlation)


def copies_to_pageable(events: Iterable[DeviceEvent]) -> Mapping[int, int]:
    """Return the bytes of each copy to ordinary memory of the host, by correlation. CUDA returns from the call that
    begins such a copy when the copy is done, and so after all that its stream was given before."""
    copies = (e for e in events if e.category == "gpu_memcpy" and "DtoH" in e.name and "Pageable" in e.name)
    return {e.correlation: e.size for e in copies if e.correlation}


class Gaps:
    """A device's timeline beside the host's."""

    def __init__(self, events: Sequence[DeviceEvent], data: Spans) -> None:
        self.kernels = [e for e in events if e.category != "gpu_memcpy"]
        self.copies = union((e.begin, e.end) for e in events if e.category == "gpu_memcpy")
        self.busy = union((e.begin, e.end) for e in self.kernels)
        self.data = data
        self._ends = [end for _, end in self.busy]

    def idle(self, step: Step) -> Spans:
        return without([(step.begin, step.end)], self.busy)

    def after(self, wait: Span) -> Spans:
        """The device's idle time after a wait of the host: from the end of the kernel that it waited for to the next
        kernel. Time in which the host waits for data, and time of copies, is left out: it has another cause."""
        begin, end = wait
        at = bisect_right(self._ends, end) - 1
        dry = max(self._ends[at] if at >= 0 else begin, begin)
        if at + 1 >= len(self.busy) or self.busy[at + 1][0] <= end:
            return []  # another stream has work: it did not run dry
        after = self.busy[at + 1][0]
        return without([(dry, after)], union([*self.data, *within(self.copies, end, after)]))  # a later copy is no wait

    def lost(self, site: Site, number: int, step: Step) -> Spans:
        """Idle time of the device in this step that this site explains."""
        spans = site.spans.get(number, [])
        lost: Spans = []
        if site.kind in ("wait", "blocking"):
            lost = union(piece for span in spans for piece in self.after(span))
        elif site.kind in ("transfer", "alloc"):
            lost = overlap(union(spans), self.idle(step))
        return within(lost, step.begin, step.end)

    def tell(self, device: int, steps: Mapping[int, Step], sites: Iterable[Site]) -> Device:
        """`steps` are the typical ones, by number."""
        sites = list(sites)
        whole = sum(step.lasts for step in steps.values())
        reasons = dict.fromkeys(REASONS, 0.0)
        gaps: list[float] = []
        kernels: list[DeviceEvent] = []
        for index, step in steps.items():
            left = idle = self.idle(step)
            gaps += [b - a for a, b in idle]
            kernels += [k for k in self.kernels if step.begin <= k.begin < step.end and k.category == "kernel"]
            for reason, spans in self._why(index, step, idle, sites):
                reasons[reason] += length(overlap(left, spans))
                left = without(left, spans)
            reasons["host"] += length(left)
        lasts = [k.end - k.begin for k in kernels]
        return Device(
            device,
            1 - sum(reasons.values()) / whole,
            {reason: us / whole for reason, us in reasons.items()},
            len(kernels) / len(steps),
            median(lasts) if lasts else 0.0,
            len(gaps) / len(steps),
            max(gaps, default=0.0),
            sum(us < SHORT_KERNEL_US for us in lasts) / len(lasts) if lasts else 0.0,
        )

    def _why(self, number: int, step: Step, idle: Spans, sites: list[Site]) -> Iterable[tuple[str, Spans]]:
        yield "data wait", within(self.data, step.begin, step.end)
        for reason, kinds in _KINDS.items():
            lost = union(s for site in sites if site.kind in kinds for s in self.lost(site, number, step))
            yield reason, lost if reason != "transfers" else union([*lost, *within(self.copies, step.begin, step.end)])
        yield "small kernels", [(a, b) for a, b in idle if b - a <= _SHORT_GAP_US]


#: As far apart as two looks of an agent, and what one may be late.
NEAR_S = 12.0


@dataclass(frozen=True)
class Watched:
    """`busy` is a share, the median of `looks`, which were taken `within` the steps, or just beside them."""

    busy: float
    looks: int
    within: bool


def watched(lines: Sequence[Mapping[str, Any]], rank: int, begin: float, end: float) -> Watched | None:
    """How busy a rank's GPUs were from `begin` to `end` (epoch seconds), by lines of metrics.jsonl. Of several GPUs the
    least busy counts at each look. None where no look shows one of them."""
    looks = [(t, busy) for line in lines if (t := number(line, "t")) is not None
             and begin - NEAR_S <= t <= end + NEAR_S and (busy := _busy(line, rank)) is not None]  # fmt: skip
    inside = [busy for t, busy in looks if begin <= t <= end]
    chosen = inside or [busy for _, busy in looks]
    return Watched(median(chosen), len(chosen), bool(inside)) if chosen else None


def _busy(line: Mapping[str, Any], rank: int) -> float | None:
    own = [gpu for gpu in dicts(line.get("gpus")) if isinstance(gpu.get("ranks"), list) and rank in gpu["ranks"]]
    found = [value for gpu in own if (value := number(gpu, "utilisation")) is not None and 0 <= value <= 100]
    return min(found) / 100 if found else None
