"""Judge what is wrong with the ranks of a running job, for `distdbg top`. Pure.

What it knows is what agents write into the run directory: events at once, figures every ten seconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from distdbg.launch.live.state import NodeState, RankState, RunState
from distdbg.model import grouped
from distdbg.wording import name_ranks

#: Figures arrive every ten seconds; a node without any for this long is silent.
SILENT_AFTER_S = 35.0
#: Beside the other ranks' memory: times, and at least so much more.
_TIMES, _MORE = 1.5, 1 << 30
#: Later than the others of its node by so much of a step, and by at least so much: below is the machine's scheduling.
_LATE, _LEAST_LATE_MS = 0.25, 1.0
#: Ranks level with each other differ by the step that some have just begun.
_LEVEL = 1
#: From the moment that a node's line is of, until it is read here: two of its looks, and what the file system takes.
_LINE_TAKES_S = 3.0
#: Of a rank's time, and of a node's host memory.
_WAITS, _LEAST_LEFT = 0.25, 1 << 30
#: Where a busy GPU belongs.
_AS_IT_SHOULD = ("power cap", "board limit")
FAILED, FAULTY, SILENT, BEHIND, SLOWED, WELL = range(6)


@dataclass(frozen=True)
class TopRow:
    """One rank, or one node's ranks. `trouble` orders rows: FAILED first, WELL last."""

    trouble: int
    words: str
    ranks: tuple[RankState, ...]
    host: str
    node: NodeState

    @property
    def id(self) -> tuple[int, int]:
        """Node and rank, -1 for all of the node's: the same after another look."""
        return self.ranks[0].node_rank, self.ranks[0].rank if len(self.ranks) == 1 else -1


class Top:
    """`take` what comes, `rows` at any time; times are the viewer's, in epoch seconds: a node's clock may differ."""

    def __init__(self) -> None:
        self.state = RunState()
        self._last_event: dict[int, float] = {}

    def take(self, node_rank: int, event: Mapping[str, Any], now: float) -> None:
        """`now` is when the viewer read it: the age of what was there before is not known."""
        self._last_event[node_rank] = now
        self.state.apply(node_rank, event)

    def rows(self, now: float, most: int, node: int | None = None) -> list[TopRow]:
        """Worst first; a line a node where ranks are more than `most`; with `node`, that node's ranks."""
        judge = _Judge(self.state, now, self._last_event)
        ranks = [self._row(rank, judge) for _, rank in sorted(self.state.ranks.items())
                 if node is None or rank.node_rank == node]  # fmt: skip
        if len(ranks) <= most or node is not None:
            return sorted(ranks, key=lambda row: row.trouble)
        by_node = grouped((row.ranks[0].node_rank, row) for row in ranks)
        return sorted((_together(rows) for rows in by_node.values()), key=lambda row: row.trouble)

    def _row(self, rank: RankState, judge: _Judge) -> TopRow:
        host = f"{rank.node_rank} {self.state.hosts.get(rank.node_rank, '')}".strip()
        node = self.state.nodes.get(rank.node_rank) or NodeState()
        return TopRow(*judge.trouble(rank, node), (rank,), host, node)

    def as_json(self, now: float) -> dict[str, Any]:
        """One object a look: every rank, in its order, and what is left of each node's host memory."""
        names = ("rank", "node_rank", "state", "pid", "step", "rate", "phase", "late_ms", "data_wait", "rss",
                 "exit_code", "gpu_busy", "gpu_used", "gpu_total", "gpu_heat", "gpu_slowed", "gpu_errors",
                 "xids")  # fmt: skip
        ranks = []
        for row in sorted(self.rows(now, len(self.state.ranks)), key=lambda row: row.ranks[0].rank):
            fields = {name: getattr(row.ranks[0], name) for name in names}
            trouble = row.words if row.trouble < WELL else None
            ranks.append(fields | {"host": self.state.hosts.get(row.ranks[0].node_rank), "trouble": trouble})
        nodes = [
            {"node_rank": number, "host": self.state.hosts.get(number), "available": node.available,
             "gpus_unknown": node.gpus_because or None}
            for number, node in sorted(self.state.nodes.items())
        ]  # fmt: skip
        return {"schema": "distdbg.top/1", "t": now, "attempt": self.state.attempt, "ranks": ranks, "nodes": nodes}


class _Judge:
    """One look at all ranks: what one is measured by is worked out once for all."""

    def __init__(self, state: RunState, now: float, last_event: Mapping[int, float]) -> None:
        self._now, self._last_event = now, last_event
        running = state.with_state("running")
        #: who is furthest, on each node and on all of them
        self._furthest = {rank.node_rank: rank for rank in sorted(running, key=lambda rank: rank.step or 0)}
        self._first = max(self._furthest.values(), key=lambda rank: rank.step or 0, default=None)
        self._sizes = sorted(rank.rss for rank in running if rank.rss)
        self._late: dict[int, dict[int, float]] = {}
        for rank in running:
            if rank.late_ms is not None:
                self._late.setdefault(rank.node_rank, {})[rank.rank] = rank.late_ms

    def trouble(self, rank: RankState, node: NodeState) -> tuple[int, str]:
        """The worst, and all of them in words."""
        found = list(self._troubles(rank, node))
        return min((level for level, _ in found), default=WELL), ", ".join(words for _, words in found)

    def _troubles(self, rank: RankState, node: NodeState) -> Iterable[tuple[int, str]]:
        if rank.state == "failed":
            yield FAILED, f"failed with exit code {rank.exit_code}" if rank.exit_code is not None else "failed"
        if rank.xids:
            yield FAULTY, f"Xid {', '.join(map(str, rank.xids[-3:]))}"
        if rank.state != "running":
            return
        yield from ((FAULTY, words) for words in node.faults)
        if rank.gpu_lost:
            yield FAULTY, rank.gpu_lost
        if rank.gpu_errors > 0:
            yield FAULTY, f"{rank.gpu_errors} memory errors of its GPU not corrected"
        silent = self._now - self._last_event.get(rank.node_rank, self._now)
        if silent > SILENT_AFTER_S:
            yield SILENT, f"no message from its node for {silent:.0f} s"
            return
        if behind := self._behind(rank):
            yield BEHIND, f"{behind} steps behind"
        if rank.step_ms and (late := self._later(rank)) >= max(_LEAST_LATE_MS, _LATE * rank.step_ms):
            yield SLOWED, f"{late:.0f} ms later than the others of its node, {late / rank.step_ms:.0%} of a step"
        if slowed := [reason for reason in rank.gpu_slowed if reason not in _AS_IT_SHOULD]:
            yield SLOWED, f"GPU slowed down: {', '.join(slowed)}"
        if rank.data_wait is not None and rank.data_wait >= _WAITS:
            yield SLOWED, f"waits for data {100 * rank.data_wait:.0f} % of its time"
        if (usual := self._usual(rank)) and (rank.rss or 0) > max(_TIMES * usual, usual + _MORE):
            yield SLOWED, f"{(rank.rss or 0) / usual:.1f} times the others' memory"
        if node.available is not None and node.available < _LEAST_LEFT:
            yield SLOWED, f"only {node.available / 2**30:.1f} GiB of host memory left on its node"

    def _behind(self, rank: RankState) -> int:
        """How many steps a rank is behind. Figures of one node have one time; those of another node are older or newer,
        by what a job does between two of its lines."""
        for first in (self._furthest.get(rank.node_rank), self._first):
            if rank.step is None or first is None or first.step is None:
                continue
            apart = (
                abs(self._last_event.get(first.node_rank, 0.0) - self._last_event.get(rank.node_rank, 0.0))
                + _LINE_TAKES_S
            )
            meanwhile = 0.0 if first.node_rank == rank.node_rank else max(first.rate or 0.0, rank.rate or 0.0) * apart
            if first.step - rank.step > _LEVEL + meanwhile:
                return first.step - rank.step
        return 0

    def _later(self, rank: RankState) -> float:
        """Than the median of the others of its node, in milliseconds."""
        others = [late for other, late in self._late.get(rank.node_rank, {}).items() if other != rank.rank]
        return rank.late_ms - median(others) if others and rank.late_ms is not None else 0.0

    def _usual(self, rank: RankState) -> float | None:
        """The median of the others' memory."""
        place = bisect_left(self._sizes, rank.rss or 0)
        others = len(self._sizes) - (rank.rss is not None)
        if others < 1:
            return None
        low, high = (self._sizes[n + (n >= place)] for n in ((others - 1) // 2, others // 2))
        return median((low, high))


def _together(rows: list[TopRow]) -> TopRow:
    worst = min(rows, key=lambda row: row.trouble)
    ranks = tuple(rank for row in rows for rank in row.ranks)
    if worst.trouble == WELL:
        return TopRow(WELL, "", ranks, worst.host, worst.node)
    same = [row.ranks[0].rank for row in rows if row.words == worst.words]
    words = worst.words if len(same) == len(rows) > 1 else f"{name_ranks(same)}: {worst.words}"
    others = sum(row.trouble < WELL and row.words != worst.words for row in rows)
    return TopRow(worst.trouble, words + (f"; {others} more" if others else ""), ranks, worst.host, worst.node)
