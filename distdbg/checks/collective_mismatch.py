"""Ranks of one group have begun different operations at the same place of its sequence."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._diverged import diverged
from distdbg.evidence.divergence import Kind
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="collective-mismatch",
        severity="error",
        title="ranks of a group are in different collectives",
        meaning="The members of a process group must begin the same operations in the same order. Some are in one and "
        "some in another: an operation was left out, done twice, or done in another order or group by the "
        "ranks that are named.",
        how_seen="The flight recorders give each operation's number in its group. At the earliest number where they do "
        "not agree, the smaller side is named; where both are equally large, both are, and it is said.",
        remedy="Compare the two lines that are named, and what the ranks did before: a `continue`, a `break`, an "
        "`except` or a condition that is true on some ranks only. Sum a flag over all ranks before leaving "
        "something out.",
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return diverged(evidence, Kind.MISMATCH, DOCS[0].remedy)
