"""Group the profiles of a run into sets that its ranks took at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.collect.files.profile_merging import Merged, RankTrace, merge
from distdbg.rundir import Attempt, RunDir


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
        """Raises what `merge` raises."""
        return merge([RankTrace(rank, path) for rank, path in sorted(self.files.items())], self.target, say)


def profile_sets(run: RunDir) -> list[ProfileSet]:
    """In the order of attempts and steps."""
    return [found for attempt in run.attempts() for found in sets_of(attempt)]


def sets_of(attempt: Attempt, only: frozenset[Path] | None = None) -> list[ProfileSet]:
    """Of all its profiles, or of those in `only`. Profiles of different ranks whose steps overlap are one set."""
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
