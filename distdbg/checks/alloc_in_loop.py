"""Memory is asked for in each step: from the driver on a GPU, or for the same constant on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="alloc-in-loop",
        severity="warning",
        title="each step allocates what could have been kept",
        meaning="After the first steps torch's allocator has what it needs: a cudaMalloc or cudaFree in a later one "
        "waits for the device. On a CPU a large tensor of zeros, ones or numbers in a row that is made in each step "
        "is new memory each time, page by page.",
        how_seen="In a profile, calls of cudaMalloc, cudaFree, cudaHostAlloc in most of the steps, while no kernel "
        "ran; without a GPU, torch.zeros, ones, full, eye and arange of one size by the same line in most of the "
        "steps. Below 5 % of a step nothing is said.",
        remedy="Make it once, before the loop, and reuse it (`zero_()`, register_buffer); on a GPU look with "
        "`distdbg memory analyze` for what fills it, and take torch.cuda.empty_cache() out of the loop.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#cuda-memory-management",
    ),
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "alloc"):
        dear = group[0].dear
        yield of_place(evidence, DOCS[0], group, f"{dear.where} calls {dear.what} {times(dear.calls)}")
    for group in places(evidence, "constant"):
        dear = group[0].dear
        made = dear.what.removeprefix("aten::")
        yield of_place(evidence, DOCS[0], group, f"{dear.where} makes {made} anew, {times(dear.calls)}")
