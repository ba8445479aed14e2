"""The ranks of one job run different versions of something."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._guards import facts, observe
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Finding, FindingDoc, fold_ranks

DOCS = (
    FindingDoc(
        id="versions-differ",
        severity="warning",
        title="the ranks run different versions",
        meaning="One rank computes with another torch, NumPy or script than its peers: a node has an environment or a "
        "checkout of its own. Collectives may mismatch, numbers differ, checkpoints may not load.",
        how_seen="Each rank tells after its first step which versions it has imported, and the checksum of its script.",
        remedy="Give all nodes one environment: the same container or a shared file system, and the same checkout.",
        source="https://github.com/pytorch/pytorch/issues/18313",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    told = {fact.rank: fact for fact in facts(evidence, "versions-differ")}
    having: dict[str, dict[str, list[GuardFact]]] = {}
    for fact in told.values():
        versions = fact.fields.get("versions")
        for name, version in versions.items() if isinstance(versions, dict) else ():
            having.setdefault(name, {}).setdefault(str(version), []).append(fact)
    for name, by_version in having.items():
        if len(by_version) < 2:
            continue
        ordered = sorted(by_version.items(), key=lambda item: (-len(item[1]), item[1][0].rank))
        words = [f"{version} on {fold_ranks(fact.rank for fact in those)}" for version, those in ordered]
        odd = [fact for _, those in ordered[1:] for fact in those]
        yield observe(evidence, DOCS[0], odd, f"{name} is not the same on all ranks: {'; '.join(words)}")
