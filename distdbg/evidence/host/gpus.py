"""Collect the state of a node's GPUs over a run, from its agent's looks: their processes, and what slowed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.jsonl import dicts, integer, number, text
from distdbg.model import grouped

#: Looks on end at which something has to be so: every ten seconds there is one.
STEADY = 3


@dataclass(frozen=True)
class Slowed:
    """At how many looks for one reason, since when (epoch seconds), and how hot it was then, in Celsius."""

    times: int
    since: float | None
    hottest: int | None


@dataclass(frozen=True)
class OtherProcess:
    """One that is no rank of the job; `bytes` and `command` as far as the driver and /proc show them."""

    pid: int
    command: str
    bytes: int | None


@dataclass(frozen=True)
class GpuCourse:
    """One device. `ranks` and `others` were on it at each of the last STEADY looks; `slowed` is by NVML's reason."""

    index: int
    looks: int
    ranks: tuple[int, ...] = ()
    others: tuple[OtherProcess, ...] = ()
    #: it has MIG instances: who shares the device need not share one of them
    parted: bool = False
    slowed: Mapping[str, Slowed] = field(default_factory=dict)


def gpu_courses(lines: Sequence[tuple[int, Mapping[str, Any]]]) -> tuple[GpuCourse, ...]:
    """One course for each GPU, by index, from lines of metrics.jsonl."""
    by_index: dict[int, list[Mapping[str, Any]]] = {}
    for _, line in lines:
        for gpu in dicts(line.get("gpus")):
            if (index := integer(gpu, "index")) is not None:
                by_index.setdefault(index, []).append({**gpu, "t": line.get("t")})
    return tuple(_course(index, looks) for index, looks in sorted(by_index.items()))


def _course(index: int, looks: Sequence[Mapping[str, Any]]) -> GpuCourse:
    by_reason = grouped((word, gpu) for gpu in looks for word in _list(gpu.get("throttle")) if isinstance(word, str))
    slowed = {}
    for word, those in by_reason.items():
        heat = [value for gpu in those if (value := integer(gpu, "temperature")) is not None]
        slowed[word] = Slowed(len(those), number(those[0], "t"), max(heat, default=None))
    last = looks[-STEADY:] if len(looks) >= STEADY else ()
    parted = any(gpu.get("mig") for gpu in looks)
    return GpuCourse(index, len(looks), _steady(last), _others(last), parted, slowed)


def _steady(looks: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    seen = [{rank for rank in _list(gpu.get("ranks")) if isinstance(rank, int)} for gpu in looks]
    return tuple(sorted(set.intersection(*seen))) if seen else ()


def _others(looks: Sequence[Mapping[str, Any]]) -> tuple[OtherProcess, ...]:
    """Processes of others at the last of these looks."""
    seen = [{pid: p for p in dicts(gpu.get("others")) if (pid := integer(p, "pid")) is not None} for gpu in looks]
    return tuple(
        OtherProcess(pid, text(found, "command"), integer(found, "memory_used"))
        for pid, found in (seen[-1].items() if seen else ())
        if all(pid in pids for pids in seen)
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


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
