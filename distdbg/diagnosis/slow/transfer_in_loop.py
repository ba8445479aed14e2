"""Batches are copied to a GPU, and the host waits for each copy: from pageable memory, or without non_blocking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdbg.diagnosis.slow._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("transfer-in-loop")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "transfer"):
        dear = group[0].dear
        summary = f"{dear.where} copies from pageable memory to the GPU {times(dear.calls)}, while no kernel runs"
        yield of_place(evidence, DOCS[0], group, summary)
    for group in places(evidence, "blocking"):
        dear = group[0].dear
        summary = f"{dear.where} copies from pinned memory to the GPU {times(dear.calls)}, and waits for the copy"
        found = of_place(evidence, DOCS[0], group, summary)
        yield replace(found, remedy="Give `.to(device, non_blocking=True)`: the memory is pinned already.")
