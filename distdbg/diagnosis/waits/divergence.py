"""Why ranks came with different operations: what their own scripts, loaders and models say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from distdbg.diagnosis.failures.handling import handling
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.timeline.groups import Group, groups
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.diagnosis.waits.last_calls import Parted, parted_at_last
from distdbg.diagnosis.waits.mismatch import earliest_mismatch, left_out
from distdbg.diagnosis.waits.rank_conditions import Condition, condition_of
from distdbg.evidence.dump import Dump
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import CauseClass

#: (file, line of a condition, in its other branch)
_Key = tuple[str, int, bool]
#: torch's own frames around every forward of a module and every backward
_PASSES = ("Module._call_impl", "_call_impl", "_engine_run_backward")


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


@lru_cache(maxsize=1)
def divergence_of(evidence: RunEvidence) -> Divergence | None:
    """None where all that came came with the same."""
    if evidence.dump is not None and evidence.dump.reason == "death":
        return _at_death(evidence, evidence.dump)
    hang = hang_of(evidence)
    if hang is None:
        return None
    if hang.mismatch is not None:
        return _of_mismatch(evidence, hang)
    return _of_forming(hang) or _of_stacks(hang)


def _of_mismatch(evidence: RunEvidence, hang: Hang) -> Divergence:
    """Where one side is larger, the others are apart. Of two sides of equal size each may be."""
    mismatch = hang.mismatch
    assert mismatch is not None
    found = Divergence(
        kind=Kind.SHAPE if mismatch.same_operation else Kind.MISMATCH,
        ranks=mismatch.few,
        others=mismatch.many,
        sides=tuple((str(side.signature), side.ranks) for side in mismatch.sides),
        place=f"number {mismatch.sequence} in {mismatch.group.title}",
        sure=not mismatch.tie,
    )
    if mismatch.tie and len(mismatch.sides) > 2:
        return found
    one, other = mismatch.sides[0].ranks, mismatch.sides[1].ranks
    pairs = [(one, other), (other, one)] if mismatch.tie else [(mismatch.few, mismatch.many)]
    raised = next((pair for pair in pairs if raised_apart(evidence, *pair)), None)
    if raised is None and (conditional := _conditional(hang, *pairs[0], found)) is not None:
        return conditional
    for few, many in pairs:
        if _out_of_data(hang, few, many):
            return replace(found, kind=Kind.UNEVEN, ranks=few, others=many)
        if _unused(evidence, hang, few, many):
            return replace(found, kind=Kind.UNUSED, ranks=few, others=many)
    if raised is not None:
        return replace(found, ranks=raised[0], others=raised[1])
    skipped = left_out(mismatch) if mismatch.tie else None
    if skipped is not None:
        others = other if skipped.ranks == one else one
        found = replace(found, ranks=skipped.ranks, others=others, times_before=skipped.times)
    return found


def raised_apart(evidence: RunEvidence, few: Iterable[int], many: Iterable[int]) -> bool:
    """The few have raised and the others have not: an `if` above the `raise` says less than what was raised."""
    return bool(handling(evidence, few)) and not handling(evidence, many)


def _at_death(evidence: RunEvidence, dump: Dump) -> Divergence | None:
    """The calls that all have written down, and the recorders of those that outlived a rank for a moment; the dead
    one's is gone.

    Only where ranks lost their connections or gloo got too much: whatever else a rank died of is no desync.
    """
    lost = [f for f in failures(evidence) if f.cause_class is CauseClass.COMMUNICATION]
    if not lost:
        return None
    parted = parted_at_last(dump, [f.rank.rank for f in lost])
    if parted is not None and not parted.tie:
        return _as_called(evidence, parted)
    known = groups(dump, {record.rank: record for record in evidence.ranks})
    mismatch = earliest_mismatch(known, dump.signatures, {})
    if mismatch is not None:
        sides = tuple((str(side.signature), side.ranks) for side in mismatch.sides)
        kind = Kind.SHAPE if mismatch.same_operation else Kind.MISMATCH
        place = f"number {mismatch.sequence} in {mismatch.group.title}"
        return Divergence(kind, mismatch.few, mismatch.many, sides, place)
    aborted = [f.rank.rank for f in lost if f.known is not None and f.known.id == "gloo-size-mismatch"]
    found = _alone_against(aborted[0], known, dump) if len(aborted) == 1 else None
    return found or (_as_called(evidence, parted) if parted is not None else None)


def _as_called(evidence: RunEvidence, parted: Parted) -> Divergence:
    """Of two sides of equal size the one is apart that has raised an error of its own, or whose size is a new one."""
    everybody = tuple(sorted(rank for _, ranks in parted.sides for rank in ranks))
    one, other = parted.sides[0][1], parted.sides[1][1]
    if not parted.tie:
        many = one
    elif len(parted.sides) == 2:
        raised = [many for few, many in ((one, other), (other, one)) if raised_apart(evidence, few, many)]
        many = raised[0] if raised else {one: other, other: one}.get(parted.apart, ())
    else:
        many = ()
    few = tuple(rank for rank in everybody if rank not in many)
    kind = Kind.SHAPE if parted.same_operation else Kind.MISMATCH
    place = f"collective {parted.number} that each of them called"
    return Divergence(kind, few, many, parted.sides, place, sure=not parted.tie)


def _alone_against(rank: int, known: list[Group], dump: Dump) -> Divergence | None:
    """gloo aborts who gets more than it expects: where all others agree, who expected less is the one that differs."""
    for group in known:
        others = {r: log for r, log in group.logs.items() if r != rank}
        if rank not in group.ranks or len(others) < max(2, len(group.ranks) - 1):
            continue
        oldest = ((log, log.first_open) for log in others.values())
        opened = {(log.sequence[at], log.signature[at]) for log, at in oldest if at is not None}
        if len(opened) == 1:
            sequence, signature = opened.pop()
            agreed = str(dump.signatures[signature]), tuple(sorted(others))
            sides = agreed, ("a smaller one, or another operation", (rank,))
            return Divergence(Kind.SHAPE, (rank,), agreed[1], sides, f"number {sequence} in {group.title}")
    return None


def _of_forming(hang: Hang) -> Divergence | None:
    """Some ranks make a group, which all must do, while the others wait for them elsewhere."""
    for circle in hang.circles:
        few = tuple(r for r in circle if hang.standings[r].doing is Doing.FORMING)
        many = _beside(hang, {r for r in circle if r not in few})
        if not few or len(few) >= len(many):
            continue
        sides = ((hang.standings[few[0]].function, few), ("another operation", many))
        found = Divergence(Kind.MISMATCH, few, many, sides)
        return _conditional(hang, few, many, found) or found
    return None


def _of_stacks(hang: Hang) -> Divergence | None:
    """Two sides wait for one another in other collectives, and no recorder tells their groups: where one side alone is
    in a branch of an `if` about its rank, that collective is one too many. Groups in another order need no such `if`.
    """
    for circle in hang.circles:
        waits = [wait for wait in hang.waits if not set(circle).isdisjoint(wait.waiting)]
        sides: dict[str, list[int]] = {}
        for rank in _beside(hang, set(circle)):
            sides.setdefault(hang.standings[rank].function, []).append(rank)
        collective = all(hang.standings[rank].doing is Doing.COLLECTIVE for rank in circle)
        if len(sides) != 2 or not collective or not all(wait.by_stacks for wait in waits):
            continue
        (_, one), (_, other) = told = tuple((function, tuple(ranks)) for function, ranks in sides.items())
        for few, many in ((one, other), (other, one)):
            if _branch_of(hang, few, many) is not None and _branch_of(hang, many, few) is None:
                found = Divergence(Kind.MISMATCH, few, many, told, "by the stacks alone", sure=False)
                return _conditional(hang, few, many, found)
    return None


def _beside(hang: Hang, ranks: set[int]) -> tuple[int, ...]:
    """`ranks` and whoever waits in the same operation, also who is no part of the circle: a pair that forms a group
    waits for nobody else."""
    return tuple(sorted(ranks.union(*(wait.waiting for wait in hang.waits if ranks & set(wait.waiting)))))


def _conditional(hang: Hang, few: tuple[int, ...], many: tuple[int, ...], found: Divergence) -> Divergence | None:
    """`found`, with the `if` about the rank that parts its sides; None where there is none.

    Of sides of equal size the one is apart that the `if` picks: rank 0 for `rank == 0` and for `rank != 0`. Where both
    sides are in a branch of it, both do what is meant for them, and all stay named; two `if`s part nobody.
    """
    sides = (few, many), (many, few)
    branches = [(pair, branch) for pair in sides if (branch := _branch_of(hang, *pair)) is not None]
    if not branches or (not found.sure and len({(b.frame.file, b.condition.line) for _, b in branches}) > 1):
        return None
    (inside, outside), branch = branches[0]
    found = replace(found, kind=Kind.RANK_CONDITIONAL, condition=branch.condition, frame=branch.frame)
    one = branch.condition.holds_for_one
    if found.sure or one is None or len(branches) > 1:
        return found
    apart, others = (inside, outside) if one is not branch.condition.otherwise else (outside, inside)
    return replace(found, ranks=apart, others=others)


def _branch_of(hang: Hang, ranks: Iterable[int], opposite: Iterable[int]) -> _Branch | None:
    """The branch of an `if` about the rank that all of `ranks` stand in, or behind, and none of `opposite`; the
    innermost."""
    ours, theirs = [_branches(hang, r) for r in ranks], [_branches(hang, r) for r in opposite]
    for key, branch in ours[0].items() if ours else ():
        if all(key in found for found in ours) and not any(_hides(branch, key, found) for found in theirs):
            return branch
    return None


@dataclass(frozen=True)
class _Branch:
    """`frame` stands in a branch of `condition`; `inner` is what it calls, None where that is not the user's."""

    condition: Condition
    frame: Frame
    inner: Frame | None


def _branches(hang: Hang, rank: int) -> dict[_Key, _Branch]:
    """By file, line and branch, the innermost first; none whose other branch makes the very call, too."""
    found: dict[_Key, _Branch] = {}
    inner = None
    for frame in hang.frames_of(rank) if rank in hang.standings else ():
        condition = condition_of(hang.dump.sources.get(frame.file, ""), frame.line)
        if condition is not None and not (inner is None and hang.standings[rank].function in condition.shared):
            key = frame.file, condition.line, condition.otherwise
            found.setdefault(key, _Branch(condition, frame, inner))
        inner = frame
    return found


def _hides(branch: _Branch, key: _Key, other: Mapping[_Key, _Branch]) -> bool:
    """The same branch, or another one that calls the same function: then it is deeper down that the ranks part."""
    file, line, otherwise = key
    if key in other:
        return True
    opposite = other.get((file, line, not otherwise))
    if opposite is None or opposite.inner is None or branch.inner is None:
        return False
    return (opposite.inner.file, opposite.inner.function) == (branch.inner.file, branch.inner.function)


def _out_of_data(hang: Hang, early: tuple[int, ...], late: tuple[int, ...]) -> bool:
    """Loaders of `early` have come to their end more often than any of `late`."""
    if any(_has_a_batch(hang, r) for r in early) or _trained(hang, early, max) > _trained(hang, late, min):
        return False  # its end came before its last step, in another loader or epoch
    ours, theirs = [_ends(hang, r) for r in early], [_ends(hang, r) for r in late]
    known = [n for n in (*ours, *theirs) if n is not None]
    return bool(theirs) and len(known) == len(ours) + len(theirs) and min(known[: len(ours)]) > max(known[len(ours) :])


def _ends(hang: Hang, rank: int) -> int | None:
    """How often a loader of this rank has come to its end: a batch asked for that did not come counts, too."""
    had = hang.dump.ranks.get(rank)
    page = had.last.page if had is not None else None
    if page is None:
        return None
    dry = max(0, (page.asks or 0) - (page.batches or 0))
    return (page.data_ends or 0) + (dry if hang.standings[rank].doing is not Doing.LOADER else 0)


def _has_a_batch(hang: Hang, rank: int) -> bool:
    """It stands in a forward or a backward."""
    had = hang.dump.ranks.get(rank)
    main = had.judged(next((look for look in had.looks if look.threads), had.first)) if had is not None else None
    return main is not None and any(f.function in _PASSES for f in main.frames)


def _trained(hang: Hang, ranks: Iterable[int], which: Callable[[list[int]], int]) -> int:
    """Backwards and steps of one of them: who has made more of them than another is not the one without data."""
    pages = [had.last.page for r in ranks if (had := hang.dump.ranks.get(r))]
    return which([(page.backwards or 0) + (page.step or 0) if page else 0 for page in pages] or [0])


def _in_backward(hang: Hang, rank: int) -> bool:
    """Its host waits there, or its device does in what the backward has enqueued."""
    standing, place = hang.standings.get(rank), hang.places.get(rank)
    waits = standing is None or standing.function == "backward"
    return waits or (place is not None and place.phase == "backward")


def _unused(evidence: RunEvidence, hang: Hang, few: tuple[int, ...], many: tuple[int, ...]) -> bool:
    """The many wait in backward for gradients that the few, done with the same backward, did not reduce.

    They ought to have: their last forward was one that DDP prepares a reduction for, which no_sync() is not.
    """
    if not many or not all(_in_backward(hang, rank) for rank in many):
        return False
    records = {record.rank: record for record in evidence.ranks}
    told = [records[r].without_gradient for r in few if r in records]
    pages = [had.last.page for r in (*few, *many) if (had := hang.dump.ranks.get(r))]
    counts = {page.backwards if page else None for page in pages}
    elsewhere = not any(_in_backward(hang, rank) for rank in few if rank in hang.standings)
    return elsewhere and bool(told) and all(t is not None and t.reduces for t in told) and len(counts) == 1
