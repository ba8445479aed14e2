"""Ranks of one group have begun the same operation with different sizes or types."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._diverged import diverged
from distdbg.evidence.divergence import Kind
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="collective-shape-mismatch",
        severity="error",
        title="ranks give one collective different sizes or types",
        meaning="Most collectives want the same number of elements of the same type from every rank. With gloo a rank "
        "that gets more than it expects aborts, which need not be the one that is wrong; NCCL hangs or mixes "
        "up memory.",
        how_seen="The flight recorders give sizes and types of each operation; the smaller side is named.",
        remedy="Print the shapes before the line that is named. Drop or pad the last batch, and check that every "
        "rank has loaded the same checkpoint and configuration.",
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return diverged(evidence, Kind.SHAPE, DOCS[0].remedy)
