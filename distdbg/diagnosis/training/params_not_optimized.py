"""Parameters that get gradients and are never updated, because no optimizer was given them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("params-not-optimized")


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
