"""Detect GPU memory outside torch's allocator that grows, or takes a large share of the device."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._growing import full_at
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.gpus import OtherProcess
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.growth import Growth, growth
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding, fold_ranks

#: An unusually large share of the device, at this many looks in a row.
_LARGE, _LOOKS = 0.25, 3


@rule("untracked-gpu-memory", needs=("rank.memory",))
def untracked_gpu_memory(run: RunEvidence) -> Iterable[Finding]:
    large: list[tuple[RankRecord, int, int]] = []
    for rank in run.ranks:
        # (step, bytes, epochs, device's bytes) where both figures were taken
        found = [
            (p.step, max(0, p.used - p.reserved), p.epochs, p.total)
            for p in (rank.memory.points if rank.memory else ())
            if p.used is not None and p.reserved is not None and p.total
        ]
        trend = growth([(step, size, epochs) for step, size, epochs, _ in found], *thresholds.UNTRACKED)
        if trend is not None:
            yield _grows(run, rank, trend)
        elif len(found) >= _LOOKS and all(size >= _LARGE * total for _, size, _, total in found[-_LOOKS:]):
            large.append((rank, found[-1][1], found[-1][3]))
    if large:
        yield _much(run, large)


def _citation(rank: RankRecord, quote: str) -> Citation:
    return Citation(f"{rank.memory.path if rank.memory else ''}/memory.jsonl", None, "NV minus CA", quote)


def _grows(run: RunEvidence, rank: RankRecord, trend: Growth) -> Finding:
    return build_finding(
        "untracked-gpu-memory",
        (rank.rank,),
        f"GPU memory outside of torch grows on the device of rank {rank.rank}, {gib(trend.slope)} a step"
        + full_at(rank.memory.points if rank.memory else (), trend.slope),
        f"It was {gib(trend.levels[0])} at step {trend.first} and {gib(trend.levels[-1])} at step {trend.last}. "
        + _whose(run, rank),
        step=trend.last,
        evidence=(_citation(rank, " -> ".join(map(gib, trend.levels))),),
    )


def _whose(run: RunEvidence, rank: RankRecord) -> str:
    """What NVML's list of processes adds to its figure for the device; without one nothing is known of others."""
    gpus = next((node.gpus for node in run.nodes if node.node_rank == rank.node_rank), ())
    course = next((gpu for gpu in gpus if rank.rank in gpu.ranks), None)
    if course is None:
        return "Whose it is, this rank's or another process's, the driver's figure does not say."
    if course.others:
        return f"On GPU {course.index} beside it: {', '.join(map(_who, course.others))}."
    beside = fold_ranks(other for other in course.ranks if other != rank.rank)
    if beside:
        return f"Beside it ranks {beside} are on GPU {course.index}, and nobody else that NVML shows."
    return f"NVML shows nobody else on GPU {course.index}: it is NCCL's, the context's or a library's."


def _who(process: OtherProcess) -> str:
    name = f"process {process.pid}" + (f" ({process.command})" if process.command else "")
    return name + (f" with {gib(process.bytes)}" if process.bytes else "")


def _much(run: RunEvidence, large: list[tuple[RankRecord, int, int]]) -> Finding:
    ranks = tuple(rank.rank for rank, _, _ in large)
    rank, size, total = max(large, key=lambda one: one[1] / one[2])
    return build_finding(
        "untracked-gpu-memory",
        ranks,
        f"{gib(size)} of {gib(total)} are in use outside of torch's allocator ({who(run, ranks)})",
        _whose(run, rank),
        confidence="possible",
        evidence=(_citation(rank, f"{gib(size)} of {gib(total)}"),),
    )
