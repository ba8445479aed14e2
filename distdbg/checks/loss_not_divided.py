"""Gradients of several micro-batches are added up, and nothing divides by their number."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import by_place, facts, observe, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="loss-not-divided",
        severity="warning",
        title="an accumulated loss is not divided by the number of micro-batches",
        meaning="Gradients that are added up over N micro-batches are N times as large as those of one large batch: "
        "the learning rate is in effect N times what was set, and clipping bites N times as soon. Optimizers of Adam's "
        "kind do not mind the size of a gradient; clipping does.",
        how_seen="A guard sees several backwards from one line, one for each batch of one loader, before one step of "
        "the optimizer, each of which begins from a mean that nothing was divided by; three times in ten steps. "
        "Scripts that divide their gradients are left alone.",
        remedy="Divide the loss by the number of micro-batches before backward().",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
    ),
)


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
