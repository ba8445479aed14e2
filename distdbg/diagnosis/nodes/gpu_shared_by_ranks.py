"""Detect ranks that share one GPU, from their processes in NVML while they run."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.gpus import GpuCourse
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.model import Citation, Finding, fold_ranks, grouped
from distdbg.wording import name_ranks


@rule("gpu-shared-by-ranks", needs=("node.gpus",))
def gpu_shared_by_ranks(run: RunEvidence) -> Iterator[Finding]:
    for node in run.nodes:
        gpus = [gpu for gpu in node.gpus if gpu.ranks]
        if not any(gpu.parted for gpu in gpus):
            yield from _node(node, gpus)


def _node(node: NodeRecord, gpus: list[GpuCourse]) -> Iterator[Finding]:
    on = grouped((rank, gpu) for gpu in gpus for rank in gpu.ranks)
    for gpu in gpus:
        only = [rank for rank in gpu.ranks if len(on[rank]) == 1]
        beside = [r for r in gpu.ranks if any(own is not gpu and own.ranks == (r,) for own in on[r])]
        if len(only) > 1:
            yield _finding(node, gpu, only, f"ranks {fold_ranks(only)} run on one GPU, {gpu.index} of {node.host}")
        elif beside and only:
            have = "has a GPU of its own" if len(beside) == 1 else "have GPUs of their own"
            ranks = name_ranks(beside)
            words = f"{ranks} {have}, and memory on rank {only[0]}'s, {gpu.index} of {node.host}"
            yield _finding(node, gpu, beside, words)


def _finding(node: NodeRecord, gpu: GpuCourse, ranks: list[int], summary: str) -> Finding:
    quote = f"GPU {gpu.index}: processes of ranks {fold_ranks(gpu.ranks)}"
    return build_finding(
        "gpu-shared-by-ranks", ranks, summary, nodes=(node.host,),
        evidence=(Citation(node.metrics_path, None, "gpus", quote),),
    )  # fmt: skip
