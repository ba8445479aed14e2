"""A rank ended by an error of its own: the root rank's traceback, not the storm that followed."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import findings_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="rank-exception",
        severity="error",
        title="a rank raised an exception",
        meaning="A rank ended with an exception that its script did not catch, or with an exit code other than 0. "
        "Of several, the one that began it comes first: an exception that was still being handled when the peers "
        "died, then one that is not about communication; lost connections are consequences.",
        how_seen="The worker side reports the exception at once and, when a sibling dies, what each rank was "
        "handling; without it, the last traceback on standard error, then torchelastic's error file.",
        remedy="Mend the line that the finding names. `distdbg findings` lists the kinds that are recognised by their "
        "message.",
        source="https://github.com/pytorch/pytorch/issues/113546",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    return findings_of(evidence, "rank-exception")
