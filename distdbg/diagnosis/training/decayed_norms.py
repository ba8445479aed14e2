"""Weight decay on norms and biases, where others of them are exempt."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("decayed-norms")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "decayed-norms")):
        fields = found[0].fields
        names = fields.get("names")
        shown = ", ".join(map(str, names)) if isinstance(names, list) else ""
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"{fields.get('count')} norms or biases are under the weight decay of the optimizer that steps at "
            f"{place(found[0])}: {shown}",
            f"{fields.get('exempt')} others are in a group without decay.",
            confidence="likely",
        )
