"""The GPU's memory ran out."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import findings_of
from distdbg.checks._snapshot_oom import from_snapshots
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="cuda-oom",
        severity="error",
        title="the GPU's memory ran out",
        meaning="An allocation on the GPU failed: weights, optimizer, activations and the allocator's reserve, or "
        "another process, fill it.",
        how_seen="torch's OutOfMemoryError, or CUDA's own error, in the rank's exception; or the event in a memory "
        "snapshot, with the segments as they were then.",
        remedy="Lower the batch size and accumulate, checkpoint activations, shard with FSDP; `distdbg memory "
        "analyze` shows what fills it.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    yield from findings_of(evidence, "cuda-oom")
    yield from from_snapshots(evidence)
