"""Why ranks came with different operations: what their own scripts, loaders and models say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from distdbg.diagnosis.timeline.call_lines import line_of
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.waits.branches import branch_of, shares_the_call
from distdbg.diagnosis.waits.divergence_at_death import divergence_at_death
from distdbg.diagnosis.waits.divergence_record import Divergence, Kind, conditional, raised_apart, with_loop_exit
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.diagnosis.waits.mismatch import Mismatch, left_out
from distdbg.evidence.run import RunEvidence
from distdbg.model import grouped

#: torch's own frames around every forward of a module and every backward
_PASSES = ("Module._call_impl", "_call_impl", "_engine_run_backward")


@lru_cache(maxsize=1)
def divergence_of(evidence: RunEvidence) -> Divergence | None:
    """None where all that came came with the same."""
    if evidence.dump is not None and evidence.dump.reason == "death":
        return divergence_at_death(evidence, evidence.dump)
    hang = hang_of(evidence)
    if hang is None:
        return None
    found = _of_mismatch(evidence, hang) if hang.mismatch is not None else _of_forming(hang) or _of_stacks(hang)
    return with_loop_exit(hang.lines, found) if found is not None else None


def _of_mismatch(evidence: RunEvidence, hang: Hang) -> Divergence:
    """Where one side is larger, the others are apart. Of two sides of equal size each may be."""
    mismatch = hang.mismatch
    assert mismatch is not None
    found = Divergence(
        kind=Kind.SHAPE if mismatch.same_operation and not _called_apart(hang, mismatch) else Kind.MISMATCH,
        ranks=mismatch.few,
        others=mismatch.many,
        sides=tuple((str(side.signature), side.ranks) for side in mismatch.sides),
        place=f"number {mismatch.sequence} in {mismatch.group.title}",
        sure=not mismatch.tie,
        maps_used=_map_used(hang, mismatch),
    )
    if found.maps_used or (mismatch.tie and len(mismatch.sides) > 2):
        return found
    one, other = mismatch.sides[0].ranks, mismatch.sides[1].ranks
    pairs = [(one, other), (other, one)] if mismatch.tie else [(mismatch.few, mismatch.many)]
    raised = next((pair for pair in pairs if raised_apart(evidence, *pair)), None)
    if raised is None and (parted := conditional(hang.lines, *pairs[0], found)) is not None:
        return parted
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


def _map_used(hang: Hang, mismatch: Mismatch) -> tuple[int, ...]:
    """Ranks that reduce int32 in their backward, while the others do something else: no gradient is int32, but the map
    of used parameters is, which DDP reduces after all gradients. All ranks have reduced these, as their operations
    before agree: the others have the gradients, too, and only DDP's options differ."""
    sides = [side for side in mismatch.sides if side.signature.operation == "all_reduce" and side.signature.one_int32]
    ranks = sides[0].ranks if len(sides) == 1 else ()
    known = [hang.standings[rank] for rank in ranks if rank in hang.standings]
    return ranks if known and all(standing.function == "backward" for standing in known) else ()


def _of_forming(hang: Hang) -> Divergence | None:
    """Some ranks make a group, which all must do, while the others wait for them elsewhere."""
    for circle in hang.circles:
        few = tuple(r for r in circle if hang.standings[r].doing is Doing.FORMING)
        many = _beside(hang, {r for r in circle if r not in few})
        if not few:
            continue
        sides = ((hang.standings[few[0]].function, few), ("another operation", many))
        found = Divergence(Kind.MISMATCH, few, many, sides, sure=len(few) < len(many))
        parted = conditional(hang.lines, few, many, found)
        if parted is not None or found.sure:
            return parted or found
    return None


def _called_apart(hang: Hang, mismatch: Mismatch) -> bool:
    """The sides called it in lines of their own, or one did and C++ began the other's: not one call with two sizes."""
    lines = [{_line_of(hang, mismatch, rank) for rank in side.ranks} for side in mismatch.sides]
    one, other = mismatch.sides[0].ranks, mismatch.sides[1].ranks
    one_call = shares_the_call(hang.lines, one, other) or shares_the_call(hang.lines, other, one)
    return lines[0].isdisjoint(*lines[1:]) and not one_call


def _line_of(hang: Hang, mismatch: Mismatch, rank: int) -> tuple[str, int] | None:
    log = mismatch.group.logs[rank]
    at = log.index(mismatch.sequence)
    assert at is not None
    operation = hang.dump.signatures[log.signature[at]].operation
    line = line_of(hang.dump.ranks[rank], log.created[at], operation)
    return (line.file, line.line) if line is not None else None


def _of_stacks(hang: Hang) -> Divergence | None:
    """Two sides wait for one another in other collectives, and no recorder tells their groups: where one side alone is
    in a branch of an `if` about its rank, that collective is one too many. Groups in another order need no such `if`,
    but more than one group.
    """
    for circle in hang.circles:
        waits = [wait for wait in hang.waits if not set(circle).isdisjoint(wait.waiting)]
        sides = grouped((hang.standings[rank].function, rank) for rank in _beside(hang, set(circle)))
        collective = all(hang.standings[rank].doing is Doing.COLLECTIVE for rank in circle)
        if len(sides) < 2 or not collective or not all(wait.by_stacks for wait in waits):
            continue
        told = tuple((function, tuple(ranks)) for function, ranks in sides.items())
        if len(sides) == 2:
            (_, one), (_, other) = told
            for few, many in ((one, other), (other, one)):
                if branch_of(hang.lines, few, many) is not None and branch_of(hang.lines, many, few) is None:
                    found = Divergence(Kind.MISMATCH, few, many, told, "by the stacks alone", sure=False)
                    return conditional(hang.lines, few, many, found)
        if _have_one_group(hang, circle):
            return _in_one_group(told)
    return _of_two_threads(hang) if hang.of_threads and not hang.circles and not hang.culprits else None


def _of_two_threads(hang: Hang) -> Divergence | None:
    """The main threads of all ranks wait in one function, and another thread of some ranks waits in another one."""
    threads = {rank: operation.function for rank, operation in hang.of_threads.items()}
    waiting = [r for r, standing in sorted(hang.standings.items()) if standing.doing is Doing.COLLECTIVE]
    sides = grouped((threads.get(rank, hang.standings[rank].function), rank) for rank in waiting)
    if len(sides) < 2 or not _have_one_group(hang, waiting):
        return None
    return _in_one_group(tuple((function, tuple(ranks)) for function, ranks in sides.items()))


def _have_one_group(hang: Hang, ranks: Iterable[int]) -> bool:
    """Each of them has a single process group, which is then that of all ranks."""
    return all(hang.dump.ranks[rank].last.process.groups == 1 for rank in ranks)


def _in_one_group(sides: tuple[tuple[str, tuple[int, ...]], ...]) -> Divergence:
    """Ranks that wait for one another in several operations of the only group that each of them has."""
    ordered = tuple(sorted(sides, key=lambda side: (-len(side[1]), side[1])))
    tie = len(ordered[0][1]) == len(ordered[1][1])
    few = tuple(sorted(rank for _, ranks in (ordered if tie else ordered[1:]) for rank in ranks))
    place = "by the stacks alone, each rank has one process group"
    return Divergence(Kind.MISMATCH, few, () if tie else ordered[0][1], ordered, place, sure=False)


def _beside(hang: Hang, ranks: set[int]) -> tuple[int, ...]:
    """`ranks` and whoever waits in the same operation, also who is no part of the circle: a pair that forms a group
    waits for nobody else."""
    return tuple(sorted(ranks.union(*(wait.waiting for wait in hang.waits if ranks & set(wait.waiting)))))


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
