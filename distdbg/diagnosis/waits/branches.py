"""The branch of an `if` about the rank that parts two sides of a job, by the lines that its ranks stand in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from distdbg.diagnosis.waits.rank_conditions import Condition, condition_of
from distdbg.evidence.stacks.threads import Frame

#: (file, line of a condition, in its other branch)
BranchKey = tuple[str, int, bool]


@dataclass(frozen=True)
class RankLines:
    """By rank: the user's lines that it stands in, innermost first, and the operation that the innermost one calls."""

    frames: Mapping[int, Sequence[Frame]]
    operations: Mapping[int, str]
    #: text of the scripts, by their path
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Branch:
    """`frame` stands in a branch of `condition`; `inner` is what it calls, None where that is not the user's."""

    condition: Condition
    frame: Frame
    inner: Frame | None


def branch_of(
    lines: RankLines, ranks: Iterable[int], opposite: Iterable[int], *, shared: bool = False
) -> Branch | None:
    """The branch of an `if` about the rank that all of `ranks` stand in, or behind, and none of `opposite`; the
    innermost. `shared`: also one whose other branch makes the very call, too."""
    ours = [branches(lines, r, shared=shared) for r in ranks]
    theirs = [branches(lines, r, shared=shared) for r in opposite]
    for key, branch in ours[0].items() if ours else ():
        if all(key in found for found in ours) and not any(_hides(branch, key, found) for found in theirs):
            return branch
    return None


def shares_the_call(lines: RankLines, ranks: tuple[int, ...], opposite: tuple[int, ...]) -> bool:
    """Both branches of an `if` about the rank make the call in which `ranks` stand: it is one call, at two lines."""
    branch = branch_of(lines, ranks, opposite, shared=True)
    return branch is not None and lines.operations.get(ranks[0]) in branch.condition.shared


def branches(lines: RankLines, rank: int, *, shared: bool = False) -> dict[BranchKey, Branch]:
    """By file, line and branch, the innermost first; none whose other branch makes the very call, too."""
    found: dict[BranchKey, Branch] = {}
    inner = None
    for frame in lines.frames.get(rank, ()):
        condition = condition_of(lines.sources.get(frame.file, ""), frame.line)
        if condition is not None and (
            shared or inner is not None or lines.operations.get(rank) not in condition.shared
        ):
            key = frame.file, condition.line, condition.otherwise
            found.setdefault(key, Branch(condition, frame, inner))
        inner = frame
    return found


def _hides(branch: Branch, key: BranchKey, other: Mapping[BranchKey, Branch]) -> bool:
    """The same branch, or another one that calls the same function: then it is deeper down that the ranks part."""
    file, line, otherwise = key
    if key in other:
        return True
    opposite = other.get((file, line, not otherwise))
    if opposite is None or opposite.inner is None or branch.inner is None:
        return False
    return (opposite.inner.file, opposite.inner.function) == (branch.inner.file, branch.inner.function)
