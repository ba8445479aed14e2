"""A rank ended by an error of its own: the root rank's traceback, not the storm that followed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.checks._findings import finding, groups
from distdbg.evidence.failure import RankFailure, failures
from distdbg.evidence.failure_exception import HANDLED
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="rank-exception",
        severity="error",
        title="a rank raised an exception",
        meaning="A rank ended with an exception that its script did not catch, or with an exit code other than 0. "
        "Of several, the one that began it comes first: one that is not about communication, before one that was "
        "still being handled when the peers died (where only connections were lost, that one began it); lost "
        "connections are consequences.",
        how_seen="The worker side reports the exception at once and, when a sibling dies, what each rank was "
        "handling; without it, the last traceback on standard error, then torchelastic's error file.",
        remedy="Mend the line that the finding names. `distdbg findings` lists the kinds that are recognised by their "
        "message.",
        source="https://github.com/pytorch/pytorch/issues/113546",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "rank-exception"):
        yield _told(finding(evidence, group), group[0])


def _told(found: Finding, lead: RankFailure) -> Finding:
    if lead.cause_class is CauseClass.VICTIM and lead.doubt == HANDLED:
        handled = "was still handling it" if len(found.ranks) == 1 else "were still handling it"
        return replace(
            found,
            severity="info",
            cause_class=CauseClass.OBSERVATION,
            summary=f"{found.summary} and {handled} when another rank failed",
            remedy="Nothing, if the script is meant to handle it.",
        )
    if lead.kind == "exit" and lead.doubt and lead.citation is not None:
        last = lead.citation.quote.rpartition("\n")[2]
        return replace(found, summary=f"{found.summary.removesuffix(' and left no traceback')} after: {last[:200]}")
    return found
