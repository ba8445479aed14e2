"""Add the profiles of a run's ranks to its evidence. A run without profiles costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import RankProfile
from distdbg.model import Unknown
from distdbg.rundir import Attempt, RunDir

#: A MB of packed traces takes some 0.5 s: a verdict waits no longer. `distdbg profile` reads all of them.
_MOST_BYTES = 12 << 20
_MOST = 8


def with_profiles(evidence: RunEvidence, run: RunDir, say: Callable[[str], None] = lambda _: None) -> RunEvidence:
    """The same evidence with what the profiles of its attempt tell. Nothing is raised for what cannot be read."""
    files = profile_files(run.attempt(evidence.attempt))
    if not files:
        return evidence
    from distdbg.collect.files.trace_files import TraceUnreadable, read_trace_file
    from distdbg.collect.files.trace_sources import source_folders
    from distdbg.collect.runs.profile_watched import with_watched

    folders = source_folders(evidence.job)
    profiles: list[RankProfile] = []
    unknown: list[Unknown] = []
    left, budget = 0, _MOST_BYTES
    for path in files:
        size = _size(path)
        if len(profiles) >= _MOST or (size > budget and profiles):
            left += 1
            continue
        budget -= size
        name = run.relative(path)
        say(f"reading {name}")
        try:
            profiles.append(with_watched(read_trace_file(path, name, folders), run.attempt(evidence.attempt)))
        except TraceUnreadable as error:
            unknown.append(Unknown(name, str(error)))
    if left:
        unknown.append(Unknown(f"{left} of {len(files)} profiles", "`distdbg profile` of the run reads all"))
    unknown += [Unknown(*one) for profile in profiles for one in profile.unknown]
    return replace(evidence, profiles=tuple(profiles), unknown=(*evidence.unknown, *unknown))


def profile_files(attempt: Attempt) -> list[Path]:
    """The newest profile of each rank, by rank."""
    newest = []
    for _, files in sorted(attempt.ranks().items()):
        newest += files.profiles()[-1:]
    return newest


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
