"""The GPU's memory ran out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import compress
from operator import not_

from distdbg.checks._findings import findings_of
from distdbg.checks._snapshot_oom import from_snapshots, shows
from distdbg.evidence.failure import failures
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="cuda-oom",
        severity="error",
        title="the GPU's memory ran out",
        meaning="An allocation on the GPU failed: weights, optimizer, activations and the allocator's reserve, or "
        "another process, fill it.",
        how_seen="torch's OutOfMemoryError, or CUDA's own error, in the rank's exception; or the event in a memory "
        "snapshot, with the segments as they were then.",
        remedy="Lower the batch size and accumulate, checkpoint activations, shard with FSDP; `distdbg memory "
        "analyze` shows what fills it.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    ),
)


def check(evidence: RunEvidence) -> Iterable[Finding]:
    """A rank's failure is told with its own snapshot; a request that failed and did not end its rank is no error."""
    own = {f.rank.rank: f for f in failures(evidence) if f.finding == "cuda-oom"}
    fatal = [a.rank in own and shows(a, own[a.rank]) for a in evidence.snapshots]
    told = list(from_snapshots(compress(evidence.snapshots, fatal)))
    for finding in findings_of(evidence, "cuda-oom"):
        mine = next((one for one in told if set(one.ranks) & set(finding.ranks)), None)
        yield finding if mine is None else _together(finding, mine)
    for one in from_snapshots(compress(evidence.snapshots, map(not_, fatal))):
        yield _survived(one) if evidence.ranks else one


def _together(failure: Finding, seen: Finding) -> Finding:
    return replace(
        failure,
        confidence=seen.confidence,
        summary=seen.summary,
        cause=f"{seen.cause} {failure.summary[:1].upper()}{failure.summary[1:]}.",
        remedy=seen.remedy,
        evidence=(*failure.evidence, *seen.evidence),
    )


def _survived(seen: Finding) -> Finding:
    """A script that looks for a batch that fits has caught it."""
    return replace(seen, severity="info", cause_class=CauseClass.OBSERVATION, summary=f"{seen.summary}; it went on")
