"""Read all evidence of a run: the files of an attempt, its memory snapshots and its profiles."""

from __future__ import annotations

from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.collect.runs.run_profiles import with_profiles
from distdbg.collect.runs.run_snapshots import with_snapshots
from distdbg.evidence.run import RunEvidence
from distdbg.rundir import RunDir


def load_whole_run(run: RunDir, attempt: int | None = None) -> RunEvidence:
    """Read the evidence of the newest attempt, or of the one numbered `attempt`. Never raises for bad content."""
    return with_profiles(with_snapshots(load_evidence(run, attempt), run), run)
