"""Trends of torch's own counts of a GPU, as `--memory` writes them down: what is allocated, what is reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.diagnosis.failures.findings import hosts
from distdbg.diagnosis.memory._growing import (
    LEAST_ON_DEVICE,
    SHARE_ON_DEVICE,
    Growing,
    device_growing,
    full_step,
    on_device,
)
from distdbg.diagnosis.memory._kept import Kept, accounts_for, fills
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.growth import Growth, Point, growth
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Confidence, Finding


def standing_grows(run: RunEvidence, named: Sequence[Kept]) -> Iterator[Finding]:
    """`memory-leak` by what is allocated at the ends of steps; silent where a snapshot or a count names it."""
    known = {answer.rank for answer in run.snapshots if answer.leaks}
    for rank, one in kept_on_device(run):
        if rank.rank in known or accounts_for(named, one, device=True):
            continue
        told, points = one.growth, on_device(rank)
        yield _finding(
            run, rank, "memory-leak", told, "MA",
            f"rank {rank.rank} keeps {gib(told.stair or told.slope)} more of its GPU with every "
            f"{'epoch' if told.stair else 'step'}{full_at(points, told.slope)}",
            f"At the ends of steps it had {gib(told.levels[0])} allocated at step {told.first}, "
            f"{gib(told.levels[-1])} at step {told.last}.",
            "See what it is: `distdbg memory snapshot RUN`, then `distdbg memory analyze RUN`.",
            "likely" if one.certain else "possible",
        )  # fmt: skip


def kept_on_device(run: RunEvidence) -> Iterator[tuple[RankRecord, Growing]]:
    """Ranks whose allocated memory grows from step to step, but for what fills a container that has an end.

    Within the first epoch, or where each step needs more than the one before, only where the device would be full soon.
    """
    filling = fills(run)
    for rank in run.ranks:
        one = device_growing(rank)
        if one is not None and (one.lasts or one.soon) and not accounts_for(filling, one, device=True):
            yield rank, one


def reserved_grows(run: RunEvidence) -> Iterator[Finding]:
    """`fragmentation`: reserved grows, and the highest that a step uses does not."""
    for rank in run.ranks:
        points = on_device(rank)
        told = growth([(p.step, p.reserved or 0, p.epochs) for p in points], LEAST_ON_DEVICE, SHARE_ON_DEVICE)
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


def _flat(points: Sequence[Point], told: Growth) -> bool:
    """By the peak within a backward too, which may rise with the sequence's length while all phases end as before."""
    used = [p.peak or p.allocated or 0 for p in points if p.step >= told.first]
    third = max(1, len(used) // 3)
    return max(used[-third:]) - max(used[:third]) <= thresholds.FLAT * told.total


def full_at(points: Sequence[Point], slope: float) -> str:
    """As the end of a sentence on the device; empty where it is not known how full that is."""
    step = full_step(points, slope)
    return "" if step is None else f": it would be full at about step {step:,}"


def _finding(  # noqa: PLR0917 -- a sentence each
    run: RunEvidence, rank: RankRecord, finding: str, told: Growth, column: str, summary: str, cause: str, remedy: str,
    confidence: Confidence = "likely",
) -> Finding:  # fmt: skip
    path = f"{rank.memory.path}/memory.jsonl" if rank.memory else ""
    levels = " -> ".join(map(gib, told.levels))
    return Finding(
        finding, "warning", confidence, summary, cause=cause, remedy=remedy, ranks=(rank.rank,),
        nodes=hosts(run, (rank.rank,)), step=told.last,
        evidence=(Citation(path, None, f"{column}, steps {told.first} to {told.last}", levels),),
    )  # fmt: skip
