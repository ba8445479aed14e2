"""Autocast to one sixteen-bit type inside autocast to the other."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("autocast-dtypes-mixed")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    inner, outer = found[0].fields.get("inner"), found[0].fields.get("outer")
    return (
        f"{place(found[0])} computes in {inner} inside of autocast to {outer}",
        f"What passes between the two is rounded to {inner} and to {outer}.",
    )
