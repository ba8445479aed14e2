"""`distdbg top`: a running job's ranks, those with something wrong first. Pure, but for the drawing.

What it knows is what agents write into the run directory: events at once, figures every ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from distdbg.launch.live import summary
from distdbg.launch.state import RankState, RunState
from distdbg.model import fold_ranks

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Figures come every ten seconds; a node whose do not come for so long is silent.
SILENT_AFTER_S = 35.0
#: Beside the other ranks' memory: times, and at least so much more.
_TIMES, _MORE = 1.5, 1 << 30
#: Ranks level with each other differ by the step that some have just begun.
_LEVEL = 1
_COLUMNS = ("node", "rank", "state", "step", "steps/s", "phase", "memory", "")
_STYLES = ("bold red", "red", "yellow", "yellow", "")


@dataclass(frozen=True)
class Row:
    """One rank, or one node's ranks. `trouble` orders rows: 0 failed, 1 silent, 2 behind, 3 memory, 4 nothing."""

    trouble: int
    words: str
    ranks: tuple[RankState, ...]
    host: str


class Top:
    """`take` what comes, `rows` at any time; times are epoch seconds."""

    def __init__(self) -> None:
        self.state = RunState()
        self._heard: dict[int, float] = {}

    def take(self, node_rank: int, event: Mapping[str, Any]) -> None:
        if isinstance(event.get("t"), (int, float)):
            self._heard[node_rank] = max(self._heard.get(node_rank, 0.0), float(event["t"]))
        self.state.apply(node_rank, event)

    @property
    def heard(self) -> float:
        """When the newest thing was: of a run that is over, the time to look from."""
        return max(self._heard.values(), default=0.0)

    def rows(self, now: float, most: int) -> list[Row]:
        """Worst first; a line a node where ranks are more than `most`, and of those the worst."""
        ranks = [self._row(rank, now) for _, rank in sorted(self.state.ranks.items())]
        if len(ranks) <= most:
            return sorted(ranks, key=lambda row: row.trouble)
        by_node: dict[int, list[Row]] = {}
        for row in ranks:
            by_node.setdefault(row.ranks[0].node_rank, []).append(row)
        nodes = sorted((_together(rows) for rows in by_node.values()), key=lambda row: row.trouble)
        return nodes[:most]

    def _row(self, rank: RankState, now: float) -> Row:
        host = f"{rank.node_rank} {self.state.hosts.get(rank.node_rank, '')}".strip()
        trouble, words = self._trouble(rank, now)
        return Row(trouble, words, (rank,), host)

    def _trouble(self, rank: RankState, now: float) -> tuple[int, str]:
        running = self.state.with_state("running")
        silent = now - self._heard.get(rank.node_rank, now)
        if rank.state == "failed":
            return 0, f"failed with exit code {rank.exit_code}" if rank.exit_code is not None else "failed"
        if rank.state == "running" and silent > SILENT_AFTER_S:
            return 1, f"nothing heard of its node for {silent:.0f} s"
        behind = (self.state.step or 0) - rank.step if rank.state == "running" and rank.step is not None else 0
        if behind > _LEVEL:
            return 2, f"{behind} steps behind"
        others = [r.rss for r in running if r is not rank and r.rss]
        if rank in running and rank.rss and others and rank.rss > max(_TIMES * median(others), median(others) + _MORE):
            return 3, f"{rank.rss / median(others):.1f} times the others' memory"
        return 4, ""

    # -- the picture ----------------------------------------------------------------------------------------

    def render(self, title: str, now: float, most: int, keys: str = "") -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None)
        for number, column in enumerate(_COLUMNS):
            right = column in ("rank", "step", "steps/s", "memory")
            table.add_column(column, justify="right" if right else "left", header_style="dim", no_wrap=number < 7)
        for row in self.rows(now, most):
            table.add_row(*_cells(row), style=_STYLES[row.trouble])
        head = Text.assemble((title, "bold"), f"  {summary(self.state)}", no_wrap=True, overflow="ellipsis")
        return Group(head, table, *([Text(keys, style="dim")] if keys else []))

    def as_json(self, now: float) -> dict[str, Any]:
        """One object a look: every rank, in its order."""
        names = ("rank", "node_rank", "state", "pid", "step", "rate", "phase", "rss", "exit_code")
        ranks = []
        for _, rank in sorted(self.state.ranks.items()):
            trouble, words = self._trouble(rank, now)
            told = {name: getattr(rank, name) for name in names}
            ranks.append(
                told | {"host": self.state.hosts.get(rank.node_rank), "trouble": words if trouble < 4 else None}
            )
        return {"schema": "distdbg.top/1", "t": now, "attempt": self.state.attempt, "ranks": ranks}


def _together(rows: Iterable[Row]) -> Row:
    rows = list(rows)
    worst = min(rows, key=lambda row: row.trouble)
    ranks = tuple(rank for row in rows for rank in row.ranks)
    if worst.trouble == 4:
        return Row(4, "", ranks, worst.host)
    same = [row.ranks[0].rank for row in rows if row.trouble == worst.trouble]
    return Row(
        worst.trouble, f"rank{'s' if len(same) > 1 else ''} {fold_ranks(same)}: {worst.words}", ranks, worst.host
    )


def _cells(row: Row) -> list[str]:
    part = RunState(ranks={rank.rank: rank for rank in row.ranks})
    states = {state: len(part.with_state(state)) for state in sorted({rank.state for rank in row.ranks})}
    state = ", ".join(f"{count} {name}" for name, count in states.items()) if len(row.ranks) > 1 else next(iter(states))
    phases = {rank.phase for rank in row.ranks if rank.state == "running" and rank.phase}
    return [
        row.host,
        fold_ranks(part.ranks),
        state,
        "" if part.step is None else str(part.step),
        f"{part.rate:.3g}" if part.rate else "",
        phases.pop() if len(phases) == 1 else "",
        f"{sum(rank.rss or 0 for rank in row.ranks) / 2**30:.2f} GiB" if any(rank.rss for rank in row.ranks) else "",
        row.words,
    ]
