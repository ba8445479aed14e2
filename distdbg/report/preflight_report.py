"""A preflight becomes a report: every check that knows nodes, and what could not be told."""

from __future__ import annotations

from distdbg.checks import all_checks
from distdbg.evidence.preflight import Preflight, unknowns
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.report.verdict import order


def preflight_report(preflight: Preflight) -> Report:
    """Without a run and an outcome: nothing was run."""
    evidence = RunEvidence(job={}, attempt=0, ranks=(), nodes=(), preflight=preflight)
    found = order(finding for check in all_checks() for finding in check.run(evidence))
    return Report(outcome=None, run={}, findings=tuple(found), unknown=tuple(unknowns(preflight)))
