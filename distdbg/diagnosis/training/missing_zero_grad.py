"""Every step uses the sum of all gradients since the start, because nobody clears them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("missing-zero-grad")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "missing-zero-grad")):
        on_cpu = found[0].fields.get("device") == "cpu"
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"the optimizer that steps at {place(found[0])} uses gradients that are never cleared",
            f"{found[0].fields.get('times')} times in a row a backward added to the gradient of the step before."
            + ("" if on_cpu else " A gradient that is zeroed through .data would look the same."),
            confidence="certain" if on_cpu else "likely",
        )
