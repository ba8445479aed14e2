"""A loader starts its workers anew for each pass, and the passes are short."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._profiles import of_place, places
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="loader-restarts",
        severity="warning",
        title="a loader's workers are started anew in each epoch",
        meaning="Without persistent_workers a loader ends its workers with its last batch, and starts others for the "
        "next pass: each of them imports and copies what the data set needs, and nothing is fetched ahead meanwhile.",
        how_seen="In a profile, a loader that starts workers at least twice in it, and what their end and their "
        "beginning take of all its steps; what the first batch then waits for comes on top. Below 5 % nothing is said.",
        remedy="DataLoader(..., persistent_workers=True).",
        source="https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
    ),
)


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
