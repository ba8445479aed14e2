"""torch.compile left a function at a line of the user's, and went on behind it."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("graph-break")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    count = max(int(fact.fields.get("count") or 1) for fact in found)
    what, _, explanation = str(fields.get("reason")).partition(" Explanation: ")
    why = [explanation, f"torch's hint: {fields['hint']}" if fields.get("hint") else "",
           f"Seen in {count} compilation{'s' * (count != 1)}"]  # fmt: skip
    return (
        f"the graph breaks at {place(found[0])}: {what}",
        " ".join(f"{sentence.rstrip('.')}." for sentence in why if sentence),
    )
