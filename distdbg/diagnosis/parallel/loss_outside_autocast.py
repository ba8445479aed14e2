"""A loss in half precision, because it was computed outside of autocast."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("loss-outside-autocast")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    loss, dtype = found[0].fields.get("loss"), found[0].fields.get("dtype")
    return (
        f"the loss whose backward begins at {place(found[0])} is computed in {dtype}",
        f"The forward runs under autocast, and {loss} does not: it stands outside of it.",
    )
