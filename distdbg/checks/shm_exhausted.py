"""Shared memory ran out."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import findings_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="shm-exhausted",
        severity="error",
        title="shared memory ran out",
        meaning="DataLoader workers pass batches through /dev/shm, and it is full.",
        how_seen="The DataLoader's or the allocator's words in the rank's exception or on its standard error.",
        remedy="Give the container more (--shm-size, --ipc=host), lower num_workers or prefetch_factor.",
        source="https://github.com/pytorch/pytorch/issues/5040",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return findings_of(evidence, "shm-exhausted")
