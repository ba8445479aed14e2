"""Batches are copied to a GPU, and the host waits for each copy: from pageable memory, or without non_blocking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdbg.checks._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="transfer-in-loop",
        severity="warning",
        title="a GPU waits for copies from the host",
        meaning="A copy from memory that is not pinned goes through a buffer of the driver, and the host waits for it, "
        "whatever `non_blocking` says: no kernel is launched meanwhile. From pinned memory it waits only where "
        "`non_blocking=True` is missing, and then for all that was launched before, too.",
        how_seen="In a profile, copies that CUDA itself names `Memcpy HtoD (Pageable -> Device)`, and those named "
        "`(Pinned -> Device)` that the same operator waits for, by the line that began them; the time counts in which "
        "no kernel ran. Below 5 % of a step nothing is said.",
        remedy="DataLoader(pin_memory=True) with `.to(device, non_blocking=True)`; make on the device what need not "
        "come from the host: torch.zeros(..., device=device).",
        source="https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
)


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
