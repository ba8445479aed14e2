"""The last batches of an epoch are accumulated and never stepped."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("leftover-steps-dropped")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    left, each = found[0].fields.get("left"), found[0].fields.get("each")
    return (
        f"the last {left} micro-batches of the loop at {place(found[0])} are never stepped",
        f"Each step is made of {each}; the next epoch began to count anew. They are thrown away where gradients are "
        "cleared there, and make its first step larger where they are not.",
    )
