"""The launcher's view of a running job, from its agents' events. Feeds the live view and `top`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from distdbg.evidence.jsonl import integer
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
        match event.get("event"):
            case "agent-started":
                self.hosts[node_rank] = str(event.get("host"))
            case "attempt-started":
                self._start_attempt(node_rank, event)
            case "rank-started":
                rank = self._rank(node_rank, event)
                rank.state, rank.pid = "running", event.get("pid")
            case "metrics":
                for sample in event.get("ranks", ()):
                    self._sample(node_rank, sample)
                self._node_sample(node_rank, event)
            case "gpu-xid":
                self._xid(node_rank, event)
            case "rank-exited":
                rank = self._rank(node_rank, event)
                rank.exit_code = event.get("exit_code")
                stopped = "stopped" if event.get("asked_to_stop") else "failed"
                rank.state = "finished" if rank.exit_code == 0 else stopped

    def _start_attempt(self, node_rank: int, event: Mapping[str, Any]) -> None:
        attempt = int(event.get("attempt", 1))
        if attempt > self.attempt:
            self.attempt, self.ranks = attempt, {}
        for rank in event.get("ranks", {}):
            self.ranks[int(rank)] = RankState(int(rank), node_rank)

    def _rank(self, node_rank: int, event: Mapping[str, Any]) -> RankState:
        number = int(event["rank"])
        return self.ranks.setdefault(number, RankState(number, node_rank))

    def _sample(self, node_rank: int, sample: Mapping[str, Any]) -> None:
        rank = self._rank(node_rank, sample)
        for name in ("step", "rate", "phase", "rss", "data_wait", "late_ms", "step_ms"):
            if sample.get(name) is not None:
                setattr(rank, name, sample[name])

    def _node_sample(self, node_rank: int, event: Mapping[str, Any]) -> None:
        node = self.nodes.setdefault(node_rank, NodeState())
        memory = event.get("memory") or {}
        available, limit, current = (integer(memory, name) for name in ("available", "limit", "current"))
        left = [available] if available is not None else []
        if limit is not None and current is not None:
            left.append(max(0, limit - current + (integer(memory, "reclaimable") or 0)))
        node.available = min(left, default=node.available)
        gpus = event.get("gpus")
        if gpus is None:
            return
        node.gpus_because = str(event.get("gpus_because") or "")
        node.gpu_busy = tuple(gpu["utilisation"] for gpu in gpus if "utilisation" in gpu)
        lost = [gpu for gpu in gpus if gpu.get("because") in LOST]
        gone = [f"GPU {gpu.get('index')}: {gpu['because']}" for gpu in lost if not gpu.get("ranks")]
        node.faults = (*(words for words in node.faults if words.startswith("Xid")), *gone)
        by_rank = grouped((rank, gpu) for gpu in gpus for rank in gpu.get("ranks", ()))
        for number, own in by_rank.items():
            _place_gpus(self._rank(node_rank, {"rank": number}), own, node.first_errors)

    def _xid(self, node_rank: int, event: Mapping[str, Any]) -> None:
        node, number = self.nodes.setdefault(node_rank, NodeState()), int(event.get("xid", 0))
        for rank in event.get("ranks", ()):
            rank_state = self._rank(node_rank, {"rank": rank})
            rank_state.xids = (*rank_state.xids, number)
        if not event.get("ranks"):
            node.faults = (f"Xid {number} on GPU {event.get('uuid')}", *node.faults)

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


def _place_gpus(rank: RankState, gpus: list[Mapping[str, Any]], first_errors: dict[int, int]) -> None:
    """Set the GPU figures of a rank: of several devices the least busy, the fullest and the hottest count."""

    def figures(name: str) -> list[int]:
        return [gpu[name] for gpu in gpus if gpu.get(name) is not None]

    rank.gpu_busy, rank.gpu_heat = min(figures("utilisation"), default=None), max(figures("temperature"), default=None)
    rank.gpu_used, rank.gpu_total = sum(figures("memory_used")) or None, sum(figures("memory_total")) or None
    rank.gpu_lost = next((str(gpu["because"]) for gpu in gpus if gpu.get("because") in LOST), "")
    rank.gpu_slowed = tuple(dict.fromkeys(reason for gpu in gpus for reason in gpu.get("throttle", ())))
    errors = {int(gpu["index"]): int(gpu.get("ecc_uncorrected") or 0) for gpu in gpus if "index" in gpu}
    rank.gpu_errors = sum(count - first_errors.setdefault(index, count) for index, count in errors.items())
