"""Find the profiles of a run's ranks: sets of the same time, and those that go into the run's evidence."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import Refused
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import RankProfile
from distdbg.model import Unknown
from distdbg.rundir import Attempt, RunDir

if TYPE_CHECKING:
    from distdbg.collect.files.profile_merging import Merged

#: A MB of packed traces takes some 0.5 s: a verdict waits no longer. `distdbg profile` reads all of them.
_MOST_BYTES = 12 << 20
_MOST = 8


@dataclass(frozen=True)
class ProfileSet:
    """Steps `first` to `last` of `attempt`; asked for while they ran, ranks may begin some steps apart."""

    attempt: Attempt
    first: int
    last: int
    files: Mapping[int, Path]

    @property
    def target(self) -> Path:
        return self.attempt.merged_profile(f"steps-{self.first}-{self.last}.json.gz")

    def merged(self) -> bool:
        """Whether there is a merged file that is newer than all of these."""
        with contextlib.suppress(OSError):
            return self.target.stat().st_mtime >= max(path.stat().st_mtime for path in self.files.values())
        return False

    def merge(self, say: Callable[[str], None]) -> Merged:
        """Raises what `merge` raises, and Refused if the run is another user's, who could not replace root's file."""
        if self.attempt.is_foreign:
            raise Refused("the profiles are not merged: the run is another user's", "Merge them as its owner.")
        from distdbg.collect.files.profile_merging import RankTrace, merge

        return merge([RankTrace(rank, path) for rank, path in sorted(self.files.items())], self.target, say)


def profile_sets(run: RunDir) -> list[ProfileSet]:
    """The sets of profiles in the order of attempts and steps."""
    return [found for attempt in run.attempts() for found in sets_of(attempt)]


def sets_of(attempt: Attempt, only: frozenset[Path] | None = None) -> list[ProfileSet]:
    """The sets of an attempt's profiles, or of those in `only`. Profiles of different ranks whose steps overlap are one
    set."""
    found = sorted(
        (*_steps(path), rank, path)
        for rank, files in attempt.ranks().items()
        for path in files.profiles()
        if only is None or path in only
    )
    sets: list[ProfileSet] = []
    for first, last, rank, path in found:
        if sets and first <= sets[-1].last and rank not in sets[-1].files:
            before = sets.pop()
            sets.append(ProfileSet(attempt, before.first, max(last, before.last), {**before.files, rank: path}))
        else:
            sets.append(ProfileSet(attempt, first, last, {rank: path}))
    return sets


def _steps(path: Path) -> tuple[int, int]:
    _, first, last = path.name.split(".")[0].split("-")
    return int(first), int(last)


def with_profiles(evidence: RunEvidence, run: RunDir, say: Callable[[str], None] = lambda _: None) -> RunEvidence:
    """The same evidence with what the profiles of its attempt tell. Nothing is raised for what cannot be read."""
    ranks = sorted(run.attempt(evidence.attempt).ranks().items())
    files = [newest for _, of_rank in ranks for newest in of_rank.profiles()[-1:]]
    if not files:
        return evidence
    from distdbg.collect.files.trace_files import TraceUnreadable, read_trace_file, source_folders, with_watched

    folders = source_folders(evidence.job)
    profiles: list[RankProfile] = []
    unknown: list[Unknown] = []
    left, budget = 0, _MOST_BYTES
    for path in files:
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
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
