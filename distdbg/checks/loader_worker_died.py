"""A DataLoader worker died: and whether memory was the reason, where the kernel says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.checks._children import died
from distdbg.checks._findings import finding, groups
from distdbg.checks._memory import event_line, node_of, oom_rise
from distdbg.evidence.failure import failures
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="loader-worker-died",
        severity="error",
        title="a DataLoader worker died",
        meaning="A worker process of the DataLoader was killed or ended; the rank noticed and raised.",
        how_seen="The DataLoader's exception in the rank; the control group's count of memory kills, the kernel's "
        "messages of the workers that it names, and what they held when the agent last looked.",
        remedy="Run with num_workers=0 to see the error itself; for SIGKILL look at the node's memory and lower "
        "num_workers.",
        source="https://pytorch.org/docs/stable/data.html#multi-process-data-loading",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding == "loader-worker-died"):
        base = finding(evidence, group)
        node = node_of(evidence, group[0].rank)
        if node is not None and oom_rise(node) > 0:
            before, after = node.cgroup["oom_kill"]
            cause = (
                f"{base.cause} Memory: the kernel's count of memory kills on this node rose from {before} to {after}."
            )
            citation = Citation(node.events_path, event_line(node, "cgroup"), "oom_kill", f"{before} -> {after}")
            base = replace(base, cause=cause, evidence=(*base.evidence, citation))
        lead = group[0]
        words, cited = died(evidence, lead.rank, f"{lead.headline} {lead.message}")
        yield replace(base, cause=f"{base.cause} {words}".strip(), evidence=(*base.evidence, *cited))
