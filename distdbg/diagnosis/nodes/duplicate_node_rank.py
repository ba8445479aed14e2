"""Two nodes would be one: the same rank, or the same machine under two names."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.nodes._nodes import of_nodes, parted
from distdbg.evidence.host.preflight import names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("duplicate-node-rank")


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
