"""What several checks ask of a run's memory over its steps: each rank's growth, and where it would end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.evidence.growth import MIB, Growth, Point, growth
from distdbg.evidence.memory_answer import gib
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.model import Citation

#: Less than this is not worth a word, whatever its slope.
LEAST, SHARE = 24 * MIB, 0.04


@dataclass(frozen=True)
class Growing:
    rank: RankRecord
    growth: Growth
    #: the step at which it ends, of what, and how many steps were done; None where nothing says what there is
    ends_at: int | None
    of: str
    points: tuple[Point, ...]
    path: str

    @property
    def citation(self) -> Citation:
        shown = self.growth.levels
        steps = f"steps {self.growth.first} to {self.growth.last}"
        return Citation(self.path, None, f"memory that is the process's own, {steps}", " -> ".join(map(gib, shown)))


def growing(run: RunEvidence) -> Iterator[Growing]:
    """Ranks whose own memory grows with their steps, each with the step at which its node has no more."""
    for node in run.nodes:
        mine = [rank for rank in run.ranks if rank.node_rank == node.node_rank]
        found = [(rank, *told) for rank in mine if (told := _of(rank, node)) is not None]
        rate = sum(one.slope for _, one, _, _ in found)
        for rank, its, points, path in found:
            ends_at = None
            if node.memory.headroom is not None:
                ends_at = points[-1].step + int(node.memory.headroom / rate)
            yield Growing(rank, its, ends_at, node.memory.of, points, path)


def _of(rank: RankRecord, node: NodeRecord) -> tuple[Growth, tuple[Point, ...], str] | None:
    """The rank's own lines where it has them; else its agent's, one in ten seconds."""
    own = (rank.memory.points, f"{rank.memory.path}/memory.jsonl") if rank.memory else ((), "")
    for points, path in (own, (node.memory.points.get(rank.rank, ()), node.memory.path)):
        told = growth([(p.step, p.anon, p.epochs) for p in points], LEAST, SHARE)
        if told is not None:
            return told, points, path
    return None
