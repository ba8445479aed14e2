"""Memory is asked for in each step: from the driver on a GPU, or for the same constant on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import of_place, places, times
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("alloc-in-loop")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "alloc"):
        dear = group[0].dear
        yield of_place(evidence, DOCS[0], group, f"{dear.where} calls {dear.what} {times(dear.calls)}")
    for group in places(evidence, "constant"):
        dear = group[0].dear
        made = dear.what.removeprefix("aten::")
        yield of_place(evidence, DOCS[0], group, f"{dear.where} makes {made} anew, {times(dear.calls)}")
