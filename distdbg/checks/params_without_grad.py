"""Parameters that an optimizer holds and that no loss reaches."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="params-without-grad",
        severity="info",
        title="parameters are to be trained, and never get a gradient",
        meaning="They stay what they were at the start. Something cuts the graph (detach, no_grad, .item(), a part "
        "that the forward does not call), or they are a part that this training does not need, which then costs "
        "memory, and DDP a search for unused parameters in each step.",
        how_seen="A guard in each rank: the optimizer keeps a state for each parameter that ever had a gradient; "
        "these have none, and no gradient, at step 101 and again at the last look, after a pass over a loader, at the "
        "end, or at step 1001.",
        remedy="Look at where the forward leaves these parameters out; freeze with requires_grad_(False), or remove, "
        "what is not to be trained.",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad",
    ),
)


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
