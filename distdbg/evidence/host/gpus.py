"""How a node's GPUs went over a run, from the looks that its agent wrote down: who was on them, what slowed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.jsonl import integer, number, text

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
    """By index, from lines of metrics.jsonl."""
    told: dict[int, list[Mapping[str, Any]]] = {}
    for _, line in lines:
        for gpu in _list(line.get("gpus")):
            if isinstance(gpu, dict) and (index := integer(gpu, "index")) is not None:
                told.setdefault(index, []).append({**gpu, "t": line.get("t")})
    return tuple(_course(index, looks) for index, looks in sorted(told.items()))


def _course(index: int, looks: Sequence[Mapping[str, Any]]) -> GpuCourse:
    by_reason: dict[str, list[Mapping[str, Any]]] = {}
    for gpu in looks:
        for word in _words(gpu):
            by_reason.setdefault(word, []).append(gpu)
    return GpuCourse(
        index,
        len(looks),
        ranks=_steady(looks[-STEADY:]) if len(looks) >= STEADY else (),
        others=_others(looks[-STEADY:]) if len(looks) >= STEADY else (),
        parted=any(gpu.get("mig") for gpu in looks),
        slowed={word: _slowed(those) for word, those in by_reason.items()},
    )


def _slowed(looks: Sequence[Mapping[str, Any]]) -> Slowed:
    heat = [value for gpu in looks if (value := integer(gpu, "temperature")) is not None]
    return Slowed(len(looks), number(looks[0], "t"), max(heat, default=None))


def _steady(looks: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    seen = [{rank for rank in _list(gpu.get("ranks")) if isinstance(rank, int)} for gpu in looks]
    return tuple(sorted(set.intersection(*seen)))


def _others(looks: Sequence[Mapping[str, Any]]) -> tuple[OtherProcess, ...]:
    """As they were at the last of these looks."""
    seen = [{pid: p for p in _list(gpu.get("others")) if isinstance(p, dict) and (pid := integer(p, "pid")) is not None}
            for gpu in looks]  # fmt: skip
    return tuple(
        OtherProcess(pid, text(found, "command"), integer(found, "memory_used"))
        for pid, found in seen[-1].items()
        if all(pid in pids for pids in seen)
    )


def _words(gpu: Mapping[str, Any]) -> Iterator[str]:
    yield from (word for word in _list(gpu.get("throttle")) if isinstance(word, str))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
