"""A rank ended by an error of its own: the root rank's traceback, not the storm that followed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.failures.exceptions import HANDLED
from distdbg.diagnosis.failures.findings import finding, groups, who
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import CauseClass, Finding

DOCS = entries("rank-exception")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "rank-exception"):
        yield _told(evidence, finding(evidence, group), group[0])


def _told(evidence: RunEvidence, found: Finding, lead: RankFailure) -> Finding:
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
        return replace(found, summary=f"{who(evidence, found.ranks)} ended with {lead.message} after: {last[:200]}")
    return found
