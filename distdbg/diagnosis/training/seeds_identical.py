"""Dropout drops the same on all ranks."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import alike, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("seeds-identical")


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
