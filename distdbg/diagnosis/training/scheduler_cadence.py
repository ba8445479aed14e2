"""The learning rate moves in another rhythm than its schedule was made for."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("scheduler-cadence")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell, confidence="likely")


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    name, planned, moved = fields.get("scheduler"), fields.get("planned"), fields.get("moved")
    passes, steps = fields.get("passes"), fields.get("steps")
    counted = f"There were {passes} passes over the training data with {steps} steps of the optimizer."
    if fields.get("made_for") == "steps":
        return f"the {name} of {place(found[0])} is made for {planned} steps, and moved {moved} times", counted
    return f"the {name} of {place(found[0])} is made for {planned} epochs, and moved {moved} times", counted
