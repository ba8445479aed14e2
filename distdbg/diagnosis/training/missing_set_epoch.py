"""Every epoch goes through the data in the same order, because nobody tells the sampler which epoch it is."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("missing-set-epoch")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    first = found[0].fields
    epoch = first.get("epoch")
    if first.get("fixed"):
        return (
            f"the loop at {place(found[0])} never calls set_epoch; it was called for it",
            f"A second pass was about to begin under epoch {epoch}. Where workers fetch ahead, it still had that "
            "order.",
        )
    return (
        f"the loop at {place(found[0])} goes through its data in the same order each time: set_epoch is not called",
        f"Two passes that trained had epoch {epoch} in a sampler that shuffles by it.",
    )
