"""The nodes reach each other, and still an all-reduce over them fails."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.nodes._nodes import of_nodes
from distdbg.evidence.host.preflight import NodeProbe, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("all-reduce-failed")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    preflight = evidence.preflight
    if preflight is None or preflight.skipped or not preflight.several or len(preflight.answered) < 2:
        return
    failed: dict[str, list[NodeProbe]] = {}
    for node in preflight.answered:
        if (why := _why(node)) is not None:
            failed.setdefault(why, []).append(node)
    for why, nodes in failed.items():
        yield of_nodes(DOCS[0], nodes, f"the all-reduce failed on {names_of([node.name for node in nodes])}: {why}")


def _why(node: NodeProbe) -> str | None:
    if node.reduced is None:
        return "it did not come to its end"
    if "unknown" in node.reduced:
        return str(node.reduced["unknown"])
    return None if node.reduced.get("ok") else "the sum is wrong"
