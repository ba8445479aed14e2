"""Read how busy NVML saw a rank's GPUs during its profile; kept apart from the time of kernels.

NVML's figure is the part of its last sample, up to a second long, in which any kernel of anybody ran. An agent records
a look every ten seconds, and most windows are shorter: then the looks just before and after are reported, as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from distdbg.evidence.jsonl import dicts, number

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
