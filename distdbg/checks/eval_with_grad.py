"""An evaluation that remembers everything for a backward that never comes."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="eval-with-grad",
        severity="warning",
        title="an evaluation builds graphs for a backward that never comes",
        meaning="model.eval() does not turn autograd off. Without torch.no_grad() each forward of the evaluation keeps "
        "its activations until its output is freed: more memory, less speed, and an out-of-memory that only comes "
        "at the first evaluation.",
        how_seen="A guard in each rank: in three batches of one pass over a loader a DDP module in evaluation mode "
        "gave an output that has a graph, and no backward or autograd.grad came.",
        remedy="Put the evaluation below `with torch.no_grad():` or torch.inference_mode().",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    return (
        f"the evaluation at {place(found[0])} builds graphs that are never used",
        f"In {found[0].fields.get('batches')} batches the model was in evaluation mode, its output had a graph, and no "
        "backward followed.",
    )
