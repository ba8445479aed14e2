"""The learning rate moves on before the step that it was meant for."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("scheduler-before-optimizer")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    return (
        f"the {fields.get('scheduler')} moves before the optimizer steps at {place(found[0])}",
        f"{fields.get('times')} times in a row it moved after the backward, and before the step.",
    )
