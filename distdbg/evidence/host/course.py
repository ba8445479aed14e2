"""Collect the figures of a run's ranks over its steps, from the looks that their agents recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.jsonl import dicts, integer, number


@dataclass(frozen=True)
class RankLook:
    """One rank at one time (epoch seconds): milliseconds a step, bytes of its process, bytes in use of its GPU."""

    t: float
    step: int
    step_ms: float | None = None
    rss: int | None = None
    gpu_used: int | None = None


def courses(lines: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, tuple[RankLook, ...]]:
    """The looks of each rank, in order, from lines of metrics.jsonl. Looks without a step are left out."""
    found: dict[int, list[RankLook]] = {}
    for _, line in lines:
        t, used = number(line, "t"), _used(dicts(line.get("gpus")))
        for row in dicts(line.get("ranks")):
            rank, step = integer(row, "rank"), integer(row, "step")
            if t is not None and rank is not None and step is not None and step >= 0:
                look = RankLook(t, step, number(row, "step_ms"), integer(row, "rss"), used.get(rank))
                found.setdefault(rank, []).append(look)
    return {rank: tuple(looks) for rank, looks in found.items()}


def _used(gpus: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The bytes of all its GPUs together, by rank."""
    found: dict[int, int] = {}
    for gpu in gpus:
        used, ranks = integer(gpu, "memory_used"), gpu.get("ranks")
        for rank in ranks if used is not None and isinstance(ranks, list) else ():
            if isinstance(rank, int):
                found[rank] = found.get(rank, 0) + (used or 0)
    return found
