"""Nobody could look into a rank on this node when it hangs."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._nodes import of_nodes
from distdbg.evidence.preflight import NodeProbe, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="ptrace-denied",
        severity="warning",
        title="a rank that hangs could not be looked into",
        meaning="Stacks of a rank that is stuck in native code are read from outside, by py-spy, with what ptrace "
        "needs. Here the kernel or the container forbids it: of a hang less would be known.",
        how_seen="The kernel is asked whether a child process may be read; who forbids it comes from Yama, the "
        "capabilities and the user.",
        remedy="Run containers with --cap-add SYS_PTRACE; elsewhere sysctl kernel.yama.ptrace_scope=1 or 0.",
        source="https://docs.kernel.org/admin-guide/LSM/Yama.html",
    ),
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    if evidence.preflight is None:
        return
    denied: dict[str, list[NodeProbe]] = {}
    for node, facts in evidence.preflight.each("ptrace"):
        if facts.get("because"):
            denied.setdefault(str(facts["because"]), []).append(node)
    for because, nodes in denied.items():
        summary = f"a rank on {names_of([node.name for node in nodes])} could not be looked into: {because}"
        yield of_nodes(DOCS[0], nodes, summary)
