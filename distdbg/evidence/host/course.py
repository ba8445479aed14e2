"""How a run went: figures of its ranks over its steps, from the looks that their agents wrote down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.jsonl import integer, number


@dataclass(frozen=True)
class Look:
    """One rank at one time (epoch seconds): milliseconds a step, bytes of its process, bytes in use of its GPU."""

    t: float
    step: int
    step_ms: float | None = None
    rss: int | None = None
    gpu_used: int | None = None


def courses(lines: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, tuple[Look, ...]]:
    """By rank, in the order of the looks, from lines of metrics.jsonl. Without a step there is no place for a look."""
    found: dict[int, list[Look]] = {}
    for _, line in lines:
        t, ranks = number(line, "t"), line.get("ranks")
        used = _used(line.get("gpus"))
        for told in ranks if t is not None and isinstance(ranks, list) else ():
            if not isinstance(told, dict):
                continue
            rank, step = integer(told, "rank"), integer(told, "step")
            if t is not None and rank is not None and step is not None and step >= 0:
                look = Look(t, step, number(told, "step_ms"), integer(told, "rss"), used.get(rank))
                found.setdefault(rank, []).append(look)
    return {rank: tuple(looks) for rank, looks in found.items()}


def _used(gpus: object) -> dict[int, int]:
    """By rank: of all its GPUs together."""
    found: dict[int, int] = {}
    for gpu in gpus if isinstance(gpus, list) else ():
        used = integer(gpu, "memory_used") if isinstance(gpu, dict) else None
        ranks = gpu.get("ranks") if isinstance(gpu, dict) else None
        for rank in ranks if used is not None and isinstance(ranks, list) else ():
            if isinstance(rank, int):
                found[rank] = found.get(rank, 0) + (used or 0)
    return found
