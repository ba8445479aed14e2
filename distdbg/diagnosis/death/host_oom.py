"""The kernel killed a rank because memory ran out, or refused it memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.death._children import children_of, grew
from distdbg.diagnosis.death._memory import killed_for_memory, sizes, story
from distdbg.diagnosis.failures.findings import failure_finding, failure_findings, who_failed
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.findings import entry
from distdbg.model import Finding


@rule("host-oom", of_failures=True)
def host_oom(evidence: RunEvidence) -> Iterable[Finding]:
    yield from failure_findings(evidence, "host-oom")
    for failure in failures(evidence):
        if failure.finding != "rank-killed" or not (reason := killed_for_memory(evidence, failure)):
            continue
        base = failure_finding(evidence, [failure])
        yield replace(
            base,
            id="host-oom",
            confidence=reason.confidence,
            summary=f"{who_failed(evidence, [failure])} was killed (SIGKILL): {reason.how}",
            cause=_cause(evidence, failure.rank),
            remedy=entry("host-oom").remedy,
            evidence=(reason.citation, *base.evidence),
        )


def _cause(evidence: RunEvidence, rank: RankRecord) -> str:
    size = sizes(evidence.node_of(rank), rank) or "How large it was is not known."
    return " ".join(filter(None, (size, story(evidence, rank), grew(children_of(evidence, rank)))))
