"""The GPU's memory ran out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.death._snapshot_oom import from_snapshot, request_of, shows
from distdbg.diagnosis.failures.findings import findings_of
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.memory._on_device import kept_on_device
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory import thresholds
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding


@rule("cuda-oom")
def cuda_oom(evidence: RunEvidence) -> Iterable[Finding]:
    """A rank's failure is told with its own snapshot; a request that failed and did not end its rank is no error.

    A file alone does not say how its job ended: steps that ended after the failed request do.
    """
    own = {f.rank.rank: f for f in failures(evidence) if f.finding == "cuda-oom"}
    fatal = [a for a in evidence.snapshots if a.rank in own and shows(a, own[a.rank])]
    told = [one for answer in fatal for one in from_snapshot(answer)]
    grown = {rank.rank: one.growth.total for rank, one in kept_on_device(evidence)} if own else {}
    for finding in findings_of(evidence, "cuda-oom"):
        mine = next((one for one in told if set(one.ranks) & set(finding.ranks)), None)
        if mine is not None:
            yield _together(finding, mine)
        elif finding.ranks and all(0 < (request_of(own[rank]) or 0) <= grown.get(rank, 0) for rank in finding.ranks):
            yield replace(finding, explained_by="memory-leak")
        else:
            yield finding
    for answer in evidence.snapshots:
        for one in from_snapshot(answer) if answer not in fatal else ():
            steps = answer.oom.steps_after if answer.oom else 0
            ended = not evidence.ranks and steps < thresholds.CAUGHT_AFTER
            yield one if ended else _survived(one, steps)


def _together(failure: Finding, seen: Finding) -> Finding:
    return replace(
        failure,
        confidence=seen.confidence,
        summary=seen.summary,
        cause=f"{seen.cause} {failure.summary[:1].upper()}{failure.summary[1:]}.",
        remedy=seen.remedy,
        evidence=(*failure.evidence, *seen.evidence),
        explained_by=seen.explained_by,
    )


def _survived(seen: Finding, steps: int) -> Finding:
    """A script that looks for a batch that fits has caught it. `steps` are those that ended after it."""
    on = f"it went on for {steps:,} steps" if steps >= thresholds.CAUGHT_AFTER else "it went on"
    return replace(
        seen,
        severity="info",
        cause_class=CauseClass.OBSERVATION,
        summary=f"{seen.summary}; {on}",
        explained_by=None,
    )
