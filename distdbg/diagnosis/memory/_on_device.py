"""Find trends of torch's own counts of a GPU, which `--memory` records: allocated and reserved bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._growing import (
    LEAST_ON_DEVICE,
    SHARE_ON_DEVICE,
    Growing,
    device_growing,
    full_step,
    on_device,
)
from distdbg.diagnosis.memory._kept import GrowingContainer, accounts_for, fills
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.growth import Growth, Point, growth
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding


def standing_grows(run: RunEvidence, named: Sequence[GrowingContainer]) -> Iterator[Finding]:
    """`memory-leak` by what is allocated at the ends of steps; silent where a snapshot or a count names it."""
    known = {answer.rank for answer in run.snapshots if answer.leaks}
    for rank, one in kept_on_device(run):
        if rank.rank in known or accounts_for(named, one, device=True):
            continue
        trend, points = one.growth, on_device(rank)
        yield build_finding("memory-leak", (rank.rank,),
            f"rank {rank.rank} keeps {gib(trend.stair or trend.slope)} more of its GPU with every "
            f"{'epoch' if trend.stair else 'step'}{full_at(points, trend.slope)}",
            f"At the ends of steps it had {gib(trend.levels[0])} allocated at step {trend.first}, "
            f"{gib(trend.levels[-1])} at step {trend.last}.",
            remedy="See what it is: `distdbg memory snapshot RUN`, then `distdbg memory analyze RUN`.",
            confidence="likely" if one.certain else "possible", step=trend.last, evidence=_citation(rank, trend, "MA"),
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
        trend = growth([(p.step, p.reserved or 0, p.epochs) for p in points], LEAST_ON_DEVICE, SHARE_ON_DEVICE)
        if trend is None:
            continue
        # By the peak within a backward too, which may rise with the sequence's length while all phases end as before.
        used = [p.peak or p.allocated or 0 for p in points if p.step >= trend.first]
        third = max(1, len(used) // 3)
        if max(used[-third:]) - max(used[:third]) > thresholds.FLAT * trend.total:
            continue
        yield build_finding("fragmentation", (rank.rank,),
            f"rank {rank.rank} reserves {gib(trend.slope)} more of its GPU with every step, for the same use"
            + full_at(points, trend.slope),
            f"torch held {gib(trend.levels[0])} at step {trend.first}, {gib(trend.levels[-1])} at step {trend.last}; "
            "the highest use of a step stayed the same: new requests do not fit into the holes.",
            remedy="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad inputs to a few sizes.",
            step=trend.last, evidence=_citation(rank, trend, "CA"),
        )  # fmt: skip


def full_at(points: Sequence[Point], slope: float) -> str:
    """The end of a sentence: the step at which the device is full; empty where that is not known."""
    step = full_step(points, slope)
    return "" if step is None else f": it would be full at about step {step:,}"


def _citation(rank: RankRecord, trend: Growth, column: str) -> tuple[Citation]:
    path = f"{rank.memory.path}/memory.jsonl" if rank.memory else ""
    levels = " -> ".join(map(gib, trend.levels))
    return (Citation(path, None, f"{column}, steps {trend.first} to {trend.last}", levels),)
