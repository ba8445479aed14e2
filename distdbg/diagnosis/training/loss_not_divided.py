"""Gradients of several micro-batches are added up, and nothing divides by their number."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("loss-not-divided")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for found in by_place(facts(evidence, "loss-not-divided")):
        losses, optimizer = found[0].fields.get("losses"), str(found[0].fields.get("optimizer"))
        yield observe(
            evidence,
            DOCS[0],
            found,
            f"the losses of {losses} micro-batches are added up at {place(found[0])}, and none is divided by {losses}",
            f"{optimizer} does not mind the size of a gradient; clipping would." if "Adam" in optimizer else "",
            severity="info" if "Adam" in optimizer else "warning",
            confidence="likely",
        )
