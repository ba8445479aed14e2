"""Detect ranks or nodes of one job that run different versions of something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from distdbg.diagnosis.guards import facts as facts_of
from distdbg.diagnosis.guards import guard_finding
from distdbg.diagnosis.node_findings import looks, node_finding, parted
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.preflight import NodeProbe, names_of
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Finding, fold_ranks

#: Ranks that differ in these do not understand each other.
_MUST = ("python", "torch", "cuda", "nccl")


@rule("versions-differ", needs=("preflight", "rank.guards"))
def versions_differ(evidence: RunEvidence) -> Iterable[Finding]:
    fact_of = {fact.rank: fact for fact in facts_of(evidence, "versions-differ")}
    yield from _ranks(evidence, fact_of)
    yield from _nodes(dict(looks(evidence, "software")))


def _ranks(evidence: RunEvidence, fact_of: dict[int, GuardFact]) -> Iterable[Finding]:
    having: dict[str, dict[int, str]] = {}
    for rank, fact in fact_of.items():
        versions = fact.fields.get("versions")
        for name, version in versions.items() if isinstance(versions, dict) else ():
            having.setdefault(name, {})[rank] = str(version)
    for name, by_rank in having.items():
        sides = parted(by_rank)
        if len(sides) > 1:
            words = [f"{version} on {fold_ranks(those)}" for version, those in sides]
            odd = [fact_of[rank] for _, those in sides[1:] for rank in those]
            yield guard_finding(
                evidence, "versions-differ", odd, f"{name} is not the same on all ranks: {'; '.join(words)}"
            )


def _nodes(known: Mapping[NodeProbe, Mapping[str, Any]]) -> Iterable[Finding]:
    for name in sorted({name for facts in known.values() for name in _software(facts)}):
        said = {node: _software(facts).get(name, "none") for node, facts in known.items()}
        sides = parted({node: version for node, version in said.items() if name != "the commit" or version != "none"})
        if len(sides) > 1:
            odd = [node for _, nodes in sides[1:] for node in nodes]
            words = [f"{value} on {names_of(nodes)}" for value, nodes in sides]
            yield node_finding(
                "versions-differ", odd, f"{name} is not the same on all nodes: {'; '.join(words)}",
                severity="error" if name in _MUST and _apart(name, [value for value, _ in sides]) else "warning",
            )  # fmt: skip


def _apart(name: str, values: Sequence[str]) -> bool:
    """Python 3.11.7 and 3.11.9 get along."""
    parts = 2 if name == "python" else 4
    return len({".".join(value.split(".")[:parts]) for value in values}) > 1


def _software(facts: Mapping[str, Any]) -> dict[str, str]:
    """All that is compared, by the name under which a person knows it."""
    git = facts.get("git", {})
    said = str(git.get("commit") or "")[:12] + (", changed" if git.get("dirty") else "")
    commit = {"the commit": said} if git.get("commit") else {}
    environment = {f"${name}": str(value) for name, value in facts.get("environment", {}).items()}
    return {**facts.get("versions", {}), **commit, **environment}
