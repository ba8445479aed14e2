"""The kernel killed a rank because memory ran out, or refused it memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.checks._children import children_of, grew
from distdbg.checks._findings import finding, findings_of, who
from distdbg.checks._memory import killed_for_memory, node_of, sizes, story
from distdbg.evidence.failure import failures
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="host-oom",
        severity="error",
        title="the node's memory ran out",
        meaning="The kernel ended a rank with SIGKILL because the machine, or the container's or job's limit, had no "
        "memory left; or an allocation was refused.",
        how_seen="A kernel message that names the process (certain), the control group's oom_kill counter that rose "
        "while the job ran, or Slurm's own message of its step (likely).",
        remedy="Ask for more memory, lower num_workers and prefetch_factor, keep large Python objects out of the "
        "dataset, load data and checkpoints memory-mapped or once a node.",
        source="https://docs.kernel.org/admin-guide/cgroup-v2.html",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    yield from findings_of(evidence, "host-oom")
    for failure in failures(evidence):
        if failure.finding != "rank-killed" or not (reason := killed_for_memory(evidence, failure)):
            continue
        base = finding(evidence, [failure])
        yield replace(
            base,
            id="host-oom",
            confidence=reason.confidence,
            summary=f"{who(evidence, base.ranks)} was killed (SIGKILL): {reason.how}",
            cause=_cause(evidence, failure.rank),
            remedy=DOCS[0].remedy,
            evidence=(reason.citation, *base.evidence),
        )


def _cause(evidence: RunEvidence, rank: RankRecord) -> str:
    size = sizes(node_of(evidence, rank), rank) or "How large it was is not known."
    return " ".join(filter(None, (size, story(evidence, rank), grew(children_of(evidence, rank)))))
