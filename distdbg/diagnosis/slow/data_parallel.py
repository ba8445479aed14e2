"""torch.nn.DataParallel in a job that has a process for each GPU."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import cost, found, same_places
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("data-parallel")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    ranks = {p.rank for p in evidence.profiles if p.rank is not None} | {r.rank for r in evidence.ranks}
    alone = f": each of the {len(ranks)} ranks trains a model of its own" if len(ranks) > 1 else ""
    for group in same_places(evidence, "parallel"):
        profile, dear = group[0]
        yield found(
            evidence,
            DOCS[0],
            [seen.profile for seen in group],
            summary=f"{dear.where} calls the model through DataParallel{alone}",
            cause=f"Its forward, with the model's own in it, is {cost(profile, dear.us)}. No gradient is averaged "
            "between ranks by it.",
            quote=f"DataParallel.forward: {dear.us / 1000:.2f} ms a step",
            confidence="certain",
        )
