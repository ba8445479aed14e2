"""What the launcher knows of a running job, from its agents' events. Feeds the live view and `top`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any


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
    exit_code: int | None = None


@dataclass
class RunState:
    """Ranks of the newest attempt. `apply` takes every event of every agent."""

    attempt: int = 0
    ranks: dict[int, RankState] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)

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
            case "rank-exited":
                rank = self._rank(node_rank, event)
                rank.exit_code = event.get("exit_code")
                rank.state = _end_state(event)

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
        for name in ("step", "rate", "phase", "rss"):
            if sample.get(name) is not None:
                setattr(rank, name, sample[name])

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


def _end_state(event: Mapping[str, Any]) -> str:
    if event.get("exit_code") == 0:
        return "finished"
    if event.get("asked_to_stop"):
        return "stopped"
    return "failed"
