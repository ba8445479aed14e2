"""A forward died of inputs on another device than the model's."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="mixed-devices",
        severity="warning",
        title="an operation gets tensors of two devices",
        meaning="What a loader gives is on the host, and so is a tensor that a module keeps as a plain attribute: "
        ".to(device) passes it by. Where DDP is given no device_ids it moves no inputs, and the first operation that "
        "meets both raises. Where the device is the CPU, as on the machine it was tried on, nothing is seen.",
        how_seen="A guard notes which inputs of a DDP model are on another device than its parameters, and tells it "
        "where that very forward raised an error about devices that ended the script.",
        remedy="Move all that the forward gets: inputs.to(device), mask.to(device).",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    inputs, own = found[0].fields.get("inputs"), found[0].fields.get("parameters")
    named = ", ".join(map(str, inputs)) if isinstance(inputs, list) else "an input elsewhere"
    return (
        f"the forward at {place(found[0])} got {named}, and the model is on {own}",
        "It raised, and the script ended with that.",
    )
