"""Parameters that get gradients and are never updated, because no optimizer was given them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="params-not-optimized",
        severity="warning",
        title="parameters get gradients, and no optimizer holds them",
        meaning="They are part of the model, want gradients and get them, and stay what they were at the start: the "
        "optimizer was made of other parameters, or before a part was added, replaced or wrapped.",
        how_seen="A guard compares the parameters of the DDP or FSDP2 model that have a gradient with those of all "
        "optimizers that step, in three windows of ten steps, and where some are missing between them, too. Before the "
        "run ends it is likely only: an optimizer may still come. Where optimizers hold other parameters of the same "
        "sizes, those may be copies.",
        remedy="Make the optimizer of model.parameters(), after the model is whole and wrapped; freeze with "
        "requires_grad_(False) what is not to be trained.",
        source="https://docs.pytorch.org/docs/stable/optim.html#constructing-it",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "params-not-optimized")):
        fields = found[0].fields
        names = fields.get("names")
        shown = ", ".join(map(str, names)) if isinstance(names, list) else ""
        none_held, copied = fields.get("none_held") is True, fields.get("copied") is True
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"{fields.get('count')} of {fields.get('parameters')} parameters get gradients and are in no optimizer "
            f"that steps at {place(found[0])}: {shown}",
            "None of the model's parameters is in an optimizer: it holds copies, or those of another model."
            if none_held
            else "Optimizers hold others of the same sizes: copies of these, it may be."
            if copied
            else "",
            severity="info" if none_held or copied else "warning",
            confidence="possible" if none_held or copied else "certain" if fields.get("ended") else "likely",
        )
