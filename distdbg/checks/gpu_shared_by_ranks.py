"""Ranks on one GPU, as NVML sees their processes while they run."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.evidence.gpu_course import STEADY, GpuCourse
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.model import Citation, Finding, FindingDoc, fold_ranks

DOCS = (
    FindingDoc(
        id="gpu-shared-by-ranks",
        severity="warning",
        title="several ranks use one GPU",
        meaning="Ranks that share a GPU share its memory and its time, and NCCL refuses two ranks on one device. Or "
        "ranks have GPUs of their own, and a context (some 0.5 GB) on another's beside: they touched CUDA before they "
        "chose their device, or loaded a checkpoint to the device that it was saved from.",
        how_seen=f"NVML's list of each device's processes, at each of the last {STEADY} looks, which are ten seconds "
        "apart. Devices with MIG instances are left out, and so are containers in which NVML shows no process.",
        remedy="Before anything else: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); load checkpoints with "
        "map_location='cpu' or the rank's own device.",
        source="https://docs.pytorch.org/docs/stable/elastic/run.html#important-notices",
    ),
)


def check(run: RunEvidence) -> Iterator[Finding]:
    for node in run.nodes:
        gpus = [gpu for gpu in node.gpus if gpu.ranks]
        if not any(gpu.parted for gpu in gpus):
            yield from _node(node, gpus)


def _node(node: NodeRecord, gpus: list[GpuCourse]) -> Iterator[Finding]:
    on: dict[int, list[GpuCourse]] = {}
    for gpu in gpus:
        for rank in gpu.ranks:
            on.setdefault(rank, []).append(gpu)
    for gpu in gpus:
        only = [rank for rank in gpu.ranks if len(on[rank]) == 1]
        beside = [r for r in gpu.ranks if any(own is not gpu and own.ranks == (r,) for own in on[r])]
        if len(only) > 1:
            yield _finding(node, gpu, only, f"ranks {fold_ranks(only)} run on one GPU, {gpu.index} of {node.host}")
        elif beside and only:
            have = "has a GPU of its own" if len(beside) == 1 else "have GPUs of their own"
            ranks = f"rank{'s' if len(beside) > 1 else ''} {fold_ranks(beside)}"
            yield _finding(
                node, gpu, beside, f"{ranks} {have}, and memory on rank {only[0]}'s, {gpu.index} of {node.host}"
            )


def _finding(node: NodeRecord, gpu: GpuCourse, ranks: list[int], summary: str) -> Finding:
    told = f"GPU {gpu.index}: processes of ranks {fold_ranks(gpu.ranks)}"
    return Finding(
        DOCS[0].id, "warning", "likely", summary, remedy=DOCS[0].remedy, ranks=tuple(ranks), nodes=(node.host,),
        evidence=(Citation(node.metrics_path, None, "gpus", told),),
    )  # fmt: skip
