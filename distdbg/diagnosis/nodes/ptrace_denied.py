"""Nobody could look into a rank on this node when it hangs."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.nodes._nodes import of_nodes
from distdbg.evidence.host.preflight import NodeProbe, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("ptrace-denied")


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
