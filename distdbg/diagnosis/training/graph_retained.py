"""The graphs of steps that are long over are kept alive: memory grows with each step."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("graph-retained")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    return (
        f"the graphs that the backward at {place(found[0])} ran through are kept alive",
        f"{fields.get('kept')} of {fields.get('of')} graphs of the first steps were there {fields.get('after')} "
        "steps later.",
    )
