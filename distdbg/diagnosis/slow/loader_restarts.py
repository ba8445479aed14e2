"""A loader starts its workers anew for each pass, and the passes are short."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.slow._profiles import of_place, places
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("loader-restarts")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    for group in places(evidence, "workers"):
        profile, dear = group[0]
        starts = round(dear.calls * profile.steps / max(int(dear.what), 1))
        workers = f"{starts} workers" if starts > 1 else "a worker"
        yield of_place(
            evidence,
            DOCS[0],
            group,
            f"{dear.where} starts {workers} anew {dear.what} times in {profile.steps} steps",
        )
