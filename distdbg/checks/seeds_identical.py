"""Dropout drops the same on all ranks."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import alike, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="seeds-identical",
        severity="info",
        title="every rank draws the same random numbers",
        meaning="One seed for all ranks is right for equal initial weights, which DDP makes equal anyway, and wrong "
        "for augmentation, dropout and noise: every rank draws the same.",
        how_seen="A guard in each rank, on models with dropout: before and after ten steps the generator of the "
        "model's device stood at the same place on ranks over which DDP or FSDP averages the gradients, and was drawn "
        "from in between.",
        remedy="Seed with seed + rank, at the latest after the model was built.",
        source="https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in alike(facts(evidence, "seeds-identical"), "before", "after"):
        fields = found[0].fields
        before = fields.get("before")
        seed = before[1] if isinstance(before, list) and len(before) > 1 else "the same number"
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"dropout draws the same random numbers on {len(found)} ranks in the steps at {place(found[0])}",
            f"Their generators were seeded with {seed}, and stood alike before and after ten steps that drew from "
            f"them; {fields.get('dropouts')} modules drop something.",
        )
