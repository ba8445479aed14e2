"""The nodes reach each other, and still an all-reduce over them fails."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._nodes import of_nodes
from distdbg.evidence.preflight import NodeProbe, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="all-reduce-failed",
        severity="error",
        title="an all-reduce over the nodes fails",
        meaning="Single connections work, and torch's own collective does not: peers are told a wrong address or "
        "interface, a firewall lets some ports through alone, or a device or a network card corrupts what it sends.",
        how_seen="`distdbg preflight` runs a small all-reduce with one rank a node, over gloo or NCCL, and checks the "
        "sum on each.",
        remedy="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface that joins the nodes; open all ports "
        "between them; read the message that is quoted.",
        source="https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use",
    ),
)


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
