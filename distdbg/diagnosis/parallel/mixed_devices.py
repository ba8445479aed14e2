"""A forward died of inputs on another device than the model's."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("mixed-devices")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    inputs, own = found[0].fields.get("inputs"), found[0].fields.get("parameters")
    named = ", ".join(map(str, inputs)) if isinstance(inputs, list) else "an input elsewhere"
    return (
        f"the forward at {place(found[0])} got {named}, and the model is on {own}",
        "It raised, and the script ended with that.",
    )
