"""model.train() is forgotten after an evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="eval-mode-wrong",
        severity="warning",
        title="eval mode that is never left, or never entered",
        meaning="After model.eval() dropout is off and batch norm uses its stored statistics, in training as well, "
        "until model.train() is called.",
        how_seen="A guard in each rank: a model trained in train mode, was called in eval mode without autograd, and "
        "then, still in eval mode, in three steps of an optimizer that holds its parameters. All its dropouts and "
        "batch norms are in eval mode, and none of its parameters has been frozen meanwhile.",
        remedy="Call model.train() after each evaluation, or at the start of every epoch.",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell, confidence="likely")


def _tell(found: Facts) -> tuple[str, str]:
    kinds = found[0].fields.get("silenced")
    shown = ", ".join(map(str, kinds)) if isinstance(kinds, list) else "what differs in training"
    return (
        f"after an evaluation the training at {place(found[0])} goes on in eval mode",
        f"The model was in train mode before; {shown} no longer do what they do in training.",
    )
