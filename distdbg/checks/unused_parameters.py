"""A rank's backward left out parameters whose gradients the others want to reduce."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._diverged import diverged
from distdbg.evidence.divergence import Kind
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="unused-parameters",
        severity="error",
        title="a rank did not use parameters that the others did",
        meaning="DDP reduces gradients in buckets, each once all its gradients are there. A rank whose forward left "
        "out a branch never has them: the others wait in backward, while it has gone on.",
        how_seen="Ranks wait in DDP's reduction with the same number of backwards as the named one, which is elsewhere "
        "and says that parameters of its model have no gradient.",
        remedy="Use the same parameters on every rank (add 0 times the unused branch's output), or give "
        "DistributedDataParallel find_unused_parameters=True.",
        source="https://pytorch.org/docs/stable/notes/ddp.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return diverged(evidence, Kind.UNUSED, DOCS[0].remedy)
