"""Limits of the shell or the scheduler that a job would run into."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.nodes._nodes import of_nodes, size
from distdbg.evidence.host.preflight import NodeProbe, names_of
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("limits-low")
_LOCKED = 64 << 20
_FILES = 1024
_PROCESSES = 512


def check(evidence: RunEvidence) -> Iterator[Finding]:
    if evidence.preflight is None:
        return
    low: dict[str, list[NodeProbe]] = {}
    for node, facts in evidence.preflight.each("limits"):
        soft = {name: int(pair[0]) for name, pair in facts.get("limits", {}).items()}
        if facts.get("rdma") and not facts.get("root") and 0 <= soft.get("memlock", -1) < _LOCKED:
            low.setdefault(f"may lock {size(soft['memlock'])} of memory, with RDMA devices there", []).append(node)
        if 0 <= soft.get("nofile", -1) < _FILES:
            low.setdefault(f"may open {soft['nofile']} files a process", []).append(node)
        if not facts.get("root") and 0 <= soft.get("nproc", -1) < _PROCESSES:
            low.setdefault(f"may have {soft['nproc']} processes and threads a user", []).append(node)
    for words, nodes in low.items():
        yield of_nodes(DOCS[0], nodes, f"a job on {names_of([node.name for node in nodes])} {words}")
