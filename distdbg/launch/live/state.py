"""The launcher's view of a running job, from its agents' events. Feeds the live view and `top`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from distdbg.evidence.exit_status import exit_status
from distdbg.evidence.jsonl import dicts, inner, integer, number, text
from distdbg.evidence.jsonl import rank as plausible_rank
from distdbg.model import grouped
from distdbg.protocol.agent_events import LOST


@dataclass
class RankState:
    rank: int
    node_rank: int
    state: str = "starting"
    pid: int | None = None
    step: int | None = None
    #: steps a second over the last sample
    rate: float | None = None
    phase: str | None = None
    rss: int | None = None
    #: the part of its time that it waits for data
    data_wait: float | None = None
    #: how much later than the first of its node it begins its forward or backward, and the time of a step: milliseconds
    late_ms: float | None = None
    step_ms: float | None = None
    exit_code: int | None = None
    #: of the devices that NVML shows its process on: busy in per cent, bytes, Celsius, why one is slowed down
    gpu_busy: int | None = None
    gpu_used: int | None = None
    gpu_total: int | None = None
    gpu_heat: int | None = None
    gpu_slowed: tuple[str, ...] = ()
    #: why one cannot be reached
    gpu_lost: str = ""
    #: since the first look: errors of its memory that ECC did not correct; the reported Xids, oldest first
    gpu_errors: int = 0
    xids: tuple[int, ...] = ()


@dataclass
class NodeState:
    """`available` are bytes of host memory that the node's ranks can still have; the rest is of its GPUs."""

    available: int | None = None
    gpu_busy: tuple[int, ...] = ()
    gpus_because: str = ""
    #: Xids on devices that no rank is known to use, and devices that cannot be reached: words
    faults: tuple[str, ...] = ()
    first_errors: dict[int, int] = field(default_factory=dict)


@dataclass
class RunState:
    """Ranks of the newest attempt. `apply` takes every event of every agent."""

    attempt: int = 0
    ranks: dict[int, RankState] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    nodes: dict[int, NodeState] = field(default_factory=dict)

    def apply(self, node_rank: int, event: Mapping[str, Any]) -> None:
        """A field of another type counts as missing; what names no plausible rank changes none."""
        match event.get("event"):
            case "agent-started":
                self.hosts[node_rank] = text(event, "host")
            case "attempt-started":
                self._start_attempt(node_rank, event)
            case "rank-started":
                for rank in self._ranks(node_rank, [event.get("rank")]):
                    rank.state, rank.pid = "running", integer(event, "pid")
            case "metrics":
                for sample in dicts(event.get("ranks")):
                    self._sample(node_rank, sample)
                self._node_sample(node_rank, event)
            case "gpu-xid":
                self._xid(node_rank, event)
            case "rank-exited":
                for rank in self._ranks(node_rank, [event.get("rank")]):
                    rank.exit_code = exit_status(event)
                    stopped = "stopped" if event.get("asked_to_stop") else "failed"
                    rank.state = "finished" if rank.exit_code == 0 else stopped

    def _start_attempt(self, node_rank: int, event: Mapping[str, Any]) -> None:
        attempt = integer(event, "attempt") or 1
        if attempt > self.attempt:
            self.attempt, self.ranks = attempt, {}
        for rank in _plausible(event.get("ranks")):
            self.ranks[rank] = RankState(rank, node_rank)

    def _ranks(self, node_rank: int, numbers: object) -> list[RankState]:
        """The states of the plausible ranks of a list."""
        return [self.ranks.setdefault(number, RankState(number, node_rank)) for number in _plausible(numbers)]

    def _sample(self, node_rank: int, sample: Mapping[str, Any]) -> None:
        fields = {
            **{name: integer(sample, name) for name in ("step", "rss")},
            **{name: number(sample, name) for name in ("rate", "data_wait", "late_ms", "step_ms")},
            "phase": text(sample, "phase") or None,
        }
        for rank in self._ranks(node_rank, [sample.get("rank")]):
            for name, value in fields.items():
                if value is not None:
                    setattr(rank, name, value)

    def _node_sample(self, node_rank: int, event: Mapping[str, Any]) -> None:
        node = self.nodes.setdefault(node_rank, NodeState())
        memory = inner(event, "memory")
        available, limit, current = (integer(memory, name) for name in ("available", "limit", "current"))
        left = [available] if available is not None else []
        if limit is not None and current is not None:
            left.append(max(0, limit - current + (integer(memory, "reclaimable") or 0)))
        node.available = min(left, default=node.available)
        if event.get("gpus") is None:
            return
        gpus = dicts(event["gpus"])
        node.gpus_because = text(event, "gpus_because")
        node.gpu_busy = tuple(_figures(gpus, "utilisation"))
        gone = [
            f"GPU {integer(gpu, 'index')}: {_why_lost(gpu)}" for gpu in gpus if _why_lost(gpu) and not gpu.get("ranks")
        ]
        node.faults = (*(words for words in node.faults if words.startswith("Xid")), *gone)
        by_rank = grouped((rank, gpu) for gpu in gpus for rank in _plausible(gpu.get("ranks")))
        for rank_number, own in by_rank.items():
            for rank in self._ranks(node_rank, [rank_number]):
                _place_gpus(rank, own, node.first_errors)

    def _xid(self, node_rank: int, event: Mapping[str, Any]) -> None:
        node, xid = self.nodes.setdefault(node_rank, NodeState()), integer(event, "xid")
        if xid is None:
            return
        for rank in self._ranks(node_rank, event.get("ranks")):
            rank.xids = (*rank.xids, xid)
        if not event.get("ranks"):
            node.faults = (f"Xid {xid} on GPU {text(event, 'uuid')}", *node.faults)

    # -- sums for a line ------------------------------------------------------------------------------------

    def with_state(self, state: str) -> list[RankState]:
        return [r for r in self.ranks.values() if r.state == state]

    @property
    def slowest(self) -> RankState | None:
        """The running rank that is furthest behind, where the ranks are not level."""
        running = [r for r in self.with_state("running") if r.step is not None]
        if len({r.step for r in running}) < 2:
            return None
        return min(running, key=lambda r: (r.step or 0, r.rank))

    @property
    def step(self) -> int | None:
        steps = [r.step for r in self.ranks.values() if r.step]
        return max(steps) if steps else None

    @property
    def rate(self) -> float | None:
        rates = [r.rate for r in self.with_state("running") if r.rate]
        return median(rates) if rates else None

    @property
    def rss(self) -> int:
        return sum(r.rss or 0 for r in self.with_state("running"))


def _plausible(numbers: object) -> Iterator[int]:
    """The plausible ranks of a list, or of an object's keys."""
    for value in numbers if isinstance(numbers, (list, dict)) else ():
        if (rank := plausible_rank(value)) is not None:
            yield rank


def _figures(gpus: list[dict[str, Any]], name: str) -> list[int]:
    return [figure for gpu in gpus if (figure := integer(gpu, name)) is not None]


def _why_lost(gpu: Mapping[str, Any]) -> str:
    """Why the device cannot be reached; empty if it can."""
    because = text(gpu, "because")
    return because if because in LOST else ""


def _place_gpus(rank: RankState, gpus: list[dict[str, Any]], first_errors: dict[int, int]) -> None:
    """Set the GPU figures of a rank: of several devices the least busy, the fullest and the hottest count."""
    rank.gpu_busy = min(_figures(gpus, "utilisation"), default=None)
    rank.gpu_heat = max(_figures(gpus, "temperature"), default=None)
    rank.gpu_used, rank.gpu_total = (
        sum(_figures(gpus, "memory_used")) or None,
        sum(_figures(gpus, "memory_total")) or None,
    )
    rank.gpu_lost = next(filter(None, map(_why_lost, gpus)), "")
    reasons = [reason for gpu in gpus if isinstance(gpu.get("throttle"), list) for reason in gpu["throttle"]]
    rank.gpu_slowed = tuple(dict.fromkeys(reason for reason in reasons if isinstance(reason, str)))
    errors = {
        index: integer(gpu, "ecc_uncorrected") or 0 for gpu in gpus if (index := integer(gpu, "index")) is not None
    }
    rank.gpu_errors = sum(count - first_errors.setdefault(index, count) for index, count in errors.items())
