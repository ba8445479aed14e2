"""Add a run's memory snapshots to its evidence: one per rank, of its failure or the last one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from distdbg.collect.files.snapshot_files import ENDINGS, SnapshotUnreadable, read_snapshot_file
from distdbg.evidence.memory.answer import MemoryAnswer
from distdbg.evidence.run import RunEvidence
from distdbg.model import Unknown
from distdbg.rundir import Attempt, RunDir

#: Each takes some 0.3 s: a verdict is not kept waiting for a thousand of them.
_MOST = 8


def with_snapshots(evidence: RunEvidence, run: RunDir) -> RunEvidence:
    """The same evidence with what the snapshots of its attempt tell. Nothing is raised for what cannot be read."""
    files = _one_each(run.attempt(evidence.attempt))
    answers: list[MemoryAnswer] = []
    unknown = []
    for path in files[:_MOST]:
        name = run.relative(path)
        try:
            answers += read_snapshot_file(path, name)
        except SnapshotUnreadable as error:
            unknown.append(Unknown(name, str(error)))
    if len(files) > _MOST:
        because = "`distdbg memory analyze` of the run reads all of them"
        unknown.append(Unknown(f"{len(files) - _MOST} of {len(files)} memory snapshots", because))
    if not files:
        return evidence
    return replace(evidence, snapshots=tuple(answers), unknown=(*evidence.unknown, *unknown))


def _one_each(attempt: Attempt) -> list[Path]:
    """Failures first, then by rank. A name begins with what it was taken for, and ends with its number."""
    chosen = []
    for files in attempt.ranks().values():
        found = [path for path in files.memory.glob("*") if path.name.endswith(ENDINGS)]
        if found:
            chosen.append(max(found, key=lambda path: (path.name.startswith("oom-"), path.name.partition(".")[0][-3:])))
    return sorted(chosen, key=lambda path: not path.name.startswith("oom-"))
