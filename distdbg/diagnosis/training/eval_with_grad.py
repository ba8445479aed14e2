"""An evaluation that remembers everything for a backward that never comes."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("eval-with-grad")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    return (
        f"the evaluation at {place(found[0])} builds graphs that are never used",
        f"In {found[0].fields.get('batches')} batches the model was in evaluation mode, its output had a graph, and no "
        "backward followed.",
    )
