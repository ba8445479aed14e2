"""A scheduler, a launcher or a signal ended the job, by its own words in a log."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import failure_finding, groups
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.findings.scheduler import OUTSIDE
from distdbg.model import Finding


@rule(*sorted(OUTSIDE), of_failures=True)
def ended_outside(evidence: RunEvidence) -> Iterable[Finding]:
    """One finding for each kind of end, from its first line: a scheduler says it once for each node."""
    said = [failure for failure in failures(evidence) if failure.finding in OUTSIDE]
    first: dict[str, list[RankFailure]] = {}
    for group in groups(said):
        first.setdefault(group[0].finding, group)
    return [failure_finding(evidence, group) for group in first.values()]
