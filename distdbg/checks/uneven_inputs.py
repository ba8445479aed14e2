"""Some ranks ran out of data before the others."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._diverged import diverged
from distdbg.evidence.divergence import Kind
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="uneven-inputs",
        severity="error",
        title="some ranks have fewer batches than others",
        meaning="A rank whose loader has ended leaves the loop, while the others go on with a step in which it takes "
        "no part.",
        how_seen="Ranks are in different collectives, and exactly those of one side have come to the end of their "
        "loader more often than all those of the other, stand in no forward or backward, and have trained no longer.",
        remedy="Give every rank the same number of batches: DistributedSampler (which pads) or drop_last, and for "
        "iterable data sets a fixed number of steps. torch.distributed.algorithms.join.Join lets ranks with "
        "fewer batches shadow the others.",
        source="https://pytorch.org/tutorials/advanced/generic_join.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return diverged(evidence, Kind.UNEVEN, DOCS[0].remedy)
