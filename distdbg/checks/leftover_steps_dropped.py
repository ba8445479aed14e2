"""The last batches of an epoch are accumulated and never stepped."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import Facts, each_place, place
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="leftover-steps-dropped",
        severity="info",
        title="the last batches of an epoch are never stepped",
        meaning="Where the number of batches is no multiple of the accumulation, the gradients of the last ones are "
        "thrown away, or spill into the next epoch.",
        how_seen="A guard counts backwards and steps of a pass over a loader: some are left behind the last step, and "
        "the next epoch's first step comes after a full number of backwards again.",
        remedy="Step as well at the last batch: `or i + 1 == len(loader)`.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return each_place(evidence, DOCS[0], _tell)


def _tell(found: Facts) -> tuple[str, str]:
    left, each = found[0].fields.get("left"), found[0].fields.get("each")
    return (
        f"the last {left} micro-batches of the loop at {place(found[0])} are never stepped",
        f"Each step is made of {each}; the next epoch began to count anew. They are thrown away where gradients are "
        "cleared there, and make its first step larger where they are not.",
    )
