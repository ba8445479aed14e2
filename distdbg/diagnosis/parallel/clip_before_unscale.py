"""Gradients are clipped while they still carry the scaler's factor."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("clip-before-unscale")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    bound = found[0].fields.get("bound")
    return (
        f"gradients are clipped to {bound} at {place(found[0])} while they still carry the GradScaler's factor",
        "The scaler had not unscaled them, and took its factor out of what was left of them in its step.",
    )
