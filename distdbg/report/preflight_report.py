"""Build the report of a preflight: the findings of all rules, and what is not known."""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnosis.rules import run_rules
from distdbg.diagnosis.verdict import order
from distdbg.evidence.host.preflight import Preflight, unknowns
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report

#: Errors that make an all-reduce fail.
_EXPLAIN = ("unreachable", "interface-wrong", "duplicate-node-rank")


def preflight_report(preflight: Preflight) -> Report:
    """The report, without a run and an outcome, since nothing was run."""
    evidence = RunEvidence(job={}, attempt=0, ranks=(), nodes=(), preflight=preflight)
    found, failed = run_rules(evidence)
    found = order(found)
    why = next((f.id for f in found if f.severity == "error" and f.id in _EXPLAIN), None)
    ordered = [replace(f, explained_by=why) if f.id == "all-reduce-failed" and why else f for f in found]
    ordered.sort(key=lambda finding: finding.explained_by is not None)  # the root first
    return Report(outcome=None, run={}, findings=tuple(ordered), unknown=(*failed, *unknowns(preflight)))
