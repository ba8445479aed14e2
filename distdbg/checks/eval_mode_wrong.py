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
        "batch norms are in eval mode, none of its parameters has been frozen meanwhile, and the script nowhere "
        "chooses the mode, as train(epoch < 2) does. Or, at least twice and with training in between: a pass over data "
        "that is not trained on, to its end, with one forward a batch, no autograd and no step, found the model, whose "
        "dropouts and batch norms are all on, in train mode; no model was ever called in eval mode, and the script "
        "does not name it.",
        remedy="Call model.eval() before each evaluation, and model.train() after it, or at the start of every epoch.",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
    ),
)


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
