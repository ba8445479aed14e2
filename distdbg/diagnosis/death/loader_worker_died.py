"""A DataLoader worker died: and whether memory was the reason, where the kernel says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.death._children import died
from distdbg.diagnosis.death._memory import node_of, oom_rise
from distdbg.diagnosis.failures.findings import finding, groups
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Citation, Finding
from distdbg.protocol.agent_events import Cgroup

DOCS = entries("loader-worker-died")


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "loader-worker-died"):
        base = finding(evidence, group)
        node = node_of(evidence, group[0].rank)
        if node is not None and oom_rise(node) > 0:
            before, after = node.cgroup["oom_kill"]
            cause = (
                f"{base.cause} Memory: the kernel's count of memory kills on this node rose from {before} to {after}."
            )
            citation = Citation(node.events_path, Cgroup.last_line(node.events), "oom_kill", f"{before} -> {after}")
            base = replace(base, cause=cause, evidence=(*base.evidence, citation))
        lead = group[0]
        words, cited = died(evidence, lead.rank, f"{lead.headline} {lead.message}")
        yield replace(base, cause=f"{base.cause} {words}".strip(), evidence=(*base.evidence, *cited))
