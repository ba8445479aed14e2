"""The learning rate moves in another rhythm than its schedule was made for."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="scheduler-cadence",
        severity="warning",
        title="the schedule of the learning rate moves per epoch where it was made for steps, or the reverse",
        meaning="A OneCycleLR that is made for all steps and moved once an epoch never leaves its warm-up; a "
        "CosineAnnealingLR that is made for the number of epochs and moved with each step goes up and down "
        "many times an epoch.",
        how_seen="At the end of the script: how often the schedule moved, the length it was made for, and how many "
        "passes over a loader and steps of the optimizer there were. All of them must fit: a OneCycleLR made for fewer "
        "than half of the steps counts epochs, of which not all came.",
        remedy="Call scheduler.step() as often as its length counts: after each batch for OneCycleLR, after each epoch "
        "where T_max counts epochs.",
        source="https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html",
    ),
)


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
