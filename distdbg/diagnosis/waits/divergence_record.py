"""What a divergence of ranks is, and the `if` that parts its sides. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from distdbg.diagnosis.failures.handling import handling
from distdbg.diagnosis.waits.branches import RankLines, branch_of
from distdbg.diagnosis.waits.loop_exits import LoopExit, find_loop_exit
from distdbg.diagnosis.waits.rank_conditions import Condition
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.threads import Frame


class Kind(Enum):
    """Each is a finding's id, but for the hyphens."""

    RANK_CONDITIONAL = "rank-conditional-collective"
    UNEVEN = "uneven-inputs"
    UNUSED = "unused-parameters"
    SHAPE = "collective-shape-mismatch"
    MISMATCH = "collective-mismatch"


@dataclass(frozen=True)
class Divergence:
    """`ranks` are the few, `others` the many. Of sides of equal size the script or the past says which is apart, and
    `sure` is False; where neither does, all are in `ranks`, and `others` is empty.

    `condition` is the `if` that parts them, at `frame`.
    """

    kind: Kind
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    #: operation of each side with its ranks, as people read it
    sides: tuple[tuple[str, tuple[int, ...]], ...]
    place: str = ""
    condition: Condition | None = None
    frame: Frame | None = None
    sure: bool = True
    #: how often all of them had called, at this point of a step, what `ranks` have left out this time; 0 where unknown
    times_before: int = 0
    #: DDP of these ranks reduces its map of used parameters there, and that of the other ranks does not
    maps_used: tuple[int, ...] = ()
    #: of each side the line of its call, where a rank may have failed at a later one; empty for none
    called_at: tuple[str, ...] = ()
    #: the loop that one side has left
    loop_exit: LoopExit | None = None

    @property
    def condition_line(self) -> str:
        """`train.py:30`; empty without a condition."""
        if self.condition is None or self.frame is None:
            return ""
        return f"{self.frame.file.rpartition('/')[2]}:{self.condition.line}"


def conditional(lines: RankLines, few: tuple[int, ...], many: tuple[int, ...], found: Divergence) -> Divergence | None:
    """`found`, with the `if` about the rank that parts its sides; None where there is none.

    Of sides of equal size the one is apart that the `if` picks: rank 0 for `rank == 0` and for `rank != 0`. Where both
    sides are in a branch of it, both do what is meant for them, and all stay named; two `if`s part nobody.
    """
    sides = (few, many), (many, few)
    branches = [(pair, branch) for pair in sides if (branch := branch_of(lines, *pair)) is not None]
    if not branches or (not found.sure and len({(b.frame.file, b.condition.line) for _, b in branches}) > 1):
        return None
    (inside, outside), branch = branches[0]
    found = replace(found, kind=Kind.RANK_CONDITIONAL, condition=branch.condition, frame=branch.frame)
    one = branch.condition.holds_for_one
    if found.sure or one is None or len(branches) > 1:
        return found
    apart, others = (inside, outside) if one is not branch.condition.otherwise else (outside, inside)
    return replace(found, ranks=apart, others=others)


def with_loop_exit(lines: RankLines, found: Divergence) -> Divergence:
    """Add the loop that one of two sides has left, unless something else is known to part them."""
    if found.kind is not Kind.MISMATCH or found.condition is not None or len(found.sides) != 2:
        return found
    (_, one), (_, other) = found.sides
    return replace(found, loop_exit=find_loop_exit(lines, one, other))


def raised_apart(evidence: RunEvidence, few: Iterable[int], many: Iterable[int]) -> bool:
    """The few have raised and the others have not: an `if` above the `raise` says less than what was raised."""
    return bool(handling(evidence, few)) and not handling(evidence, many)
