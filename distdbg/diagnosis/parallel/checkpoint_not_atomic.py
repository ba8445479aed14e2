"""The only checkpoint is overwritten in place."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("checkpoint-not-atomic")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell, confidence="likely")


def _tell(found: Facts) -> tuple[str, str]:
    path = found[0].fields.get("path")
    if found[0].fields.get("fixed"):
        return (
            f"{place(found[0])} overwrites {path} in place; it was written under another name and renamed for it",
            "There is no other checkpoint beside it.",
        )
    return (
        f"{place(found[0])} overwrites {path} in place, and there is no other checkpoint beside it",
        "A job that is killed while it writes has no checkpoint left.",
    )
