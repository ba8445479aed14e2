"""Gradients are averaged over all ranks several times for each step of the optimizer; once would do."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("redundant-allreduce")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    times = found[0].fields.get("reduced")
    return (
        f"the backward at {place(found[0])} reduces gradients {times} times for each step of the optimizer",
        "One all-reduce a step gives the same gradients.",
    )
