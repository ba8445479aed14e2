"""Two nodes would be one: the same rank, or the same machine under two names."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._nodes import of_nodes, parted
from distdbg.evidence.preflight import names_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="duplicate-node-rank",
        severity="error",
        title="two nodes are one",
        meaning="Two names lead to one machine, or two nodes were given the same node rank. Of two torchruns with one "
        "rank one ends with EADDRINUSE and the other waits in silence.",
        how_seen="Host name, boot id and network namespace of each node; PET_NODE_RANK, NODE_RANK and GROUP_RANK in "
        "the environment that a job would inherit there.",
        remedy="Name each machine once, and give each node a rank of its own.",
        source="https://docs.pytorch.org/docs/stable/elastic/run.html",
    ),
)


def check(evidence: RunEvidence) -> Iterator[Finding]:
    preflight = evidence.preflight
    if preflight is None or preflight.on == "local":
        return
    looks = dict(preflight.each("names"))
    for identity, nodes in parted({node: str(facts.get("identity", node.name)) for node, facts in looks.items()}):
        if len(nodes) > 1:
            names = names_of([node.name for node in nodes])
            yield of_nodes(DOCS[0], nodes, f"{names} are one machine, which calls itself {identity.split()[0]}")
    for variable in sorted({name for facts in looks.values() for name in facts.get("ranks", {})}):
        ranks = {node: str(f["ranks"][variable]) for node, f in looks.items() if variable in f.get("ranks", {})}
        for rank, nodes in parted(ranks):
            if len(nodes) > 1:
                names = names_of([node.name for node in nodes])
                yield of_nodes(DOCS[0], nodes, f"{names} all have node rank {rank} ({variable}={rank})")
