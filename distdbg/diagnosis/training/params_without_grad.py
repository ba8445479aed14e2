"""Parameters that an optimizer holds and that no loss reaches."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("params-without-grad")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    names = fields.get("names")
    shown = ", ".join(map(str, names)) if isinstance(names, list) else ""
    return (
        f"{fields.get('count')} of {fields.get('parameters')} parameters of the optimizer at {place(found[0])} never "
        f"got a gradient: {shown}",
        f"In {fields.get('steps')} steps the optimizer made no state for them.",
    )
