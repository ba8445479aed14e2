"""model.train() is forgotten after an evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("eval-mode-wrong")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell, confidence="likely")


def _tell(found: Facts) -> tuple[str, str]:
    active = found[0].fields.get("active")
    if isinstance(active, list):
        return (
            f"the evaluation at {place(found[0])} runs in train mode",
            f"{', '.join(map(str, active))} do there what they do in training: dropout drops, batch norm learns from "
            "what is only to be measured.",
        )
    kinds = found[0].fields.get("silenced")
    shown = ", ".join(map(str, kinds)) if isinstance(kinds, list) else "what differs in training"
    return (
        f"after an evaluation the training at {place(found[0])} goes on in eval mode",
        f"The model was in train mode before; {shown} no longer do what they do in training.",
    )
