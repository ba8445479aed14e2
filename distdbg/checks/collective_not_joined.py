"""Ranks never came to an operation, and where they are instead is not known."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import hosts, who
from distdbg.checks._stuck import citations, plural, since, waited
from distdbg.evidence.hang import hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.standing import Doing
from distdbg.model import CauseClass, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="collective-not-joined",
        severity="error",
        title="ranks never came to a collective",
        meaning="Some ranks wait in an operation that others have not begun. Where those are instead is not known: "
        "nothing could be collected of them, or they have ended. Where it is known, the finding bears another id.",
        how_seen="The flight recorders of the waiting ranks, and the reason why there is no stack of the missing ones.",
        remedy="Look at the ranks that are named: their output, their node, and whether py-spy may look at them "
        "(`distdbg hang-dump` says what is missing).",
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not hang.stands:
        return
    for culprit in hang.culprits:
        if culprit.standing.doing not in (Doing.UNKNOWN, Doing.ENDED) or not culprit.waits:
            continue
        waiting = tuple(sorted({rank for wait in culprit.waits for rank in wait.waiting}))
        subject = who(evidence, culprit.ranks)
        yield Finding(
            id="collective-not-joined",
            severity="error",
            confidence="possible" if culprit.standing.doing is Doing.UNKNOWN else "likely",
            summary=f"{who(evidence, waiting)} wait{'s' if len(waiting) == 1 else ''} in {culprit.waits[0].what} for "
            f"{subject}, which {plural(culprit.standing.phrase, culprit.ranks)}",
            cause=waited(evidence, hang, culprit.waits),
            remedy=DOCS[0].remedy,
            ranks=culprit.ranks,
            nodes=hosts(evidence, culprit.ranks),
            evidence=citations(hang, culprit.ranks, waiting),
            cause_class=CauseClass.STUCK,
            first_seen=since(hang, culprit.waits),
        )
