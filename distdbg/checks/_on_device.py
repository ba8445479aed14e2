"""Trends of torch's own counts of a GPU, as `--memory` writes them down: what is allocated, what is reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.checks._findings import hosts
from distdbg.checks._kept import keeps
from distdbg.evidence.growth import MIB, Growth, Point, growth
from distdbg.evidence.memory_answer import gib
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding

_LEAST, _SHARE = 64 * MIB, 0.03
#: Of what reserved grew by, allocated may have grown by this.
_FLAT = 0.25


def standing_grows(run: RunEvidence) -> Iterator[Finding]:
    """`memory-leak` by what is allocated at the ends of steps; silent where a snapshot or a count names it."""
    known = {answer.rank for answer in run.snapshots if answer.leaks}
    for rank in run.ranks:
        points = _points(rank)
        told = growth([(p.step, p.standing or 0, p.epochs) for p in points], _LEAST, _SHARE)
        if told is None or told.epochs == 0 or rank.rank in known or any(True for _ in keeps(rank)):
            continue
        yield _finding(
            run, rank, "memory-leak", told, "MA",
            f"rank {rank.rank} keeps {gib(told.slope)} more of its GPU with every step{full_at(points, told.slope)}",
            f"At the ends of steps it had {gib(told.levels[0])} allocated at step {told.first}, "
            f"{gib(told.levels[-1])} at step {told.last}.",
            "See what it is: `distdbg memory snapshot RUN`, then `distdbg memory analyze RUN`.",
        )  # fmt: skip


def reserved_grows(run: RunEvidence) -> Iterator[Finding]:
    """`fragmentation`: reserved grows, and the highest that a step uses does not."""
    for rank in run.ranks:
        points = _points(rank)
        told = growth([(p.step, p.reserved or 0, p.epochs) for p in points], _LEAST, _SHARE)
        if told is None or not _flat(points, told):
            continue
        yield _finding(
            run, rank, "fragmentation", told, "CA",
            f"rank {rank.rank} reserves {gib(told.slope)} more of its GPU with every step, for the same use"
            + full_at(points, told.slope),
            f"torch held {gib(told.levels[0])} at step {told.first} and {gib(told.levels[-1])} at step {told.last}; "
            "the highest use of a step stayed the same: new requests do not fit into the holes.",
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad inputs to a few sizes.",
        )  # fmt: skip


def _points(rank: RankRecord) -> list[Point]:
    return [p for p in (rank.memory.points if rank.memory else ()) if p.reserved is not None]


def _flat(points: Sequence[Point], told: Growth) -> bool:
    """By the peak within a backward too, which may rise with the sequence's length while all phases end as before."""
    used = [p.peak or p.allocated or 0 for p in points if p.step >= told.first]
    third = max(1, len(used) // 3)
    return max(used[-third:]) - max(used[:third]) <= _FLAT * told.total


def full_at(points: Sequence[Point], slope: float) -> str:
    """What the device has, less what is in use of it, at this slope (bytes a step)."""
    last = next((p for p in reversed(points) if p.used is not None and p.total), None)
    if last is None or last.used is None or last.total is None:
        return ""
    return f": it would be full at about step {last.step + int((last.total - last.used) / slope):,}"


def _finding(  # noqa: PLR0917 -- a sentence each
    run: RunEvidence, rank: RankRecord, finding: str, told: Growth, column: str, summary: str, cause: str, remedy: str
) -> Finding:
    path = f"{rank.memory.path}/memory.jsonl" if rank.memory else ""
    levels = " -> ".join(map(gib, told.levels))
    return Finding(
        finding, "warning", "likely", summary, cause=cause, remedy=remedy, ranks=(rank.rank,),
        nodes=hosts(run, (rank.rank,)), step=told.last,
        evidence=(Citation(path, None, f"{column}, steps {told.first} to {told.last}", levels),),
    )  # fmt: skip
