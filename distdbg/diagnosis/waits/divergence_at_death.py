"""Why ranks came with different operations, where ranks have died of it. Pure.

The calls that all have recorded, the recorders of those that outlived a rank for a moment, and the lines at which each
rank failed. The recorder of a dead rank is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.failures.record import RankFailure
from distdbg.diagnosis.timeline.groups import Group, groups
from distdbg.diagnosis.waits.branches import RankLines, branch_of, branches, shares_the_call
from distdbg.diagnosis.waits.divergence_record import (
    Divergence,
    Kind,
    conditional,
    raised_apart,
    with_loop_exit,
)
from distdbg.diagnosis.waits.last_calls import Parted, call_words, parted_at_last
from distdbg.diagnosis.waits.mismatch import Mismatch, earliest_mismatch
from distdbg.evidence.dump import Dump
from distdbg.evidence.ops import RECEIVE, SEND, is_transfer, of_kind
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import CauseClass

#: gloo's word for more bytes than a rank expects: then ranks came with different operations or sizes, for certain
_SIZE_MISMATCH = "gloo-size-mismatch"
_SENDS, _RECEIVES = of_kind(SEND), of_kind(RECEIVE)
_LESS = "a smaller one, or another operation"


def divergence_at_death(evidence: RunEvidence, dump: Dump) -> Divergence | None:
    """Only where ranks lost their connections or gloo got too much: whatever else a rank died of is no desync."""
    lost = [f for f in failures(evidence) if f.cause_class is CauseClass.COMMUNICATION]
    if not lost:
        return None
    lines = _lines(dump, lost)
    if (found := _received_more(dump, lost, lines)) is not None:
        return found
    found = _by_operations(evidence, dump, lost, lines)
    if found is None:
        return _by_lines(dump, lines, lost)
    if len(found.sides) != 2:
        return found
    one, other = found.sides[0][1], found.sides[1][1]
    few, many = (found.ranks, found.others) if found.others else (one, other)
    if raised_apart(evidence, few, many) or raised_apart(evidence, many, few):
        return found
    return _conditional(lines, few, many, found) or with_loop_exit(lines, _with_branch(lines, few, many, found))


def _conditional(lines: RankLines, few: tuple[int, ...], many: tuple[int, ...], found: Divergence) -> Divergence | None:
    """Who is apart must stand in the branch and have failed in the call that it made there: a later `wait` parts
    nobody, and of the many behind an `if` that raises it is not known at a death whether the few have raised there."""
    parted = conditional(lines, few, many, found)
    if parted is None or parted.frame is None:
        return None
    inside = all(parted.frame in lines.frames.get(rank, ()) and rank in lines.operations for rank in parted.ranks)
    return parted if inside else None


def _with_branch(lines: RankLines, few: tuple[int, ...], many: tuple[int, ...], found: Divergence) -> Divergence:
    """Both branches make the call, and with different sizes: the `if` is named, and blames nobody."""
    branch = branch_of(lines, few, many, shared=True)
    if branch is None:
        return found
    one_call = shares_the_call(lines, few, many) and len({lines.operations.get(r) for r in (*few, *many)}) == 1
    kind = Kind.SHAPE if one_call else found.kind
    return replace(found, kind=kind, condition=branch.condition, frame=branch.frame)


def _lines(dump: Dump, lost: Iterable[RankFailure]) -> RankLines:
    """A traceback says where a rank failed; where it printed none, as when torchrun ended it, its newest call does."""
    frames, operations = {}, {}
    printed = {failure.rank.rank: failure.frames for failure in lost}
    for rank, had in dump.ranks.items():
        last = had.calls[-1] if had.calls else None
        frames[rank] = [Frame(f.function, f.file, f.line) for f in printed.get(rank, ())]
        if last is not None and not frames[rank] and last.file:
            frames[rank] = [Frame(last.function, last.file, last.line)]
        if last is not None and frames[rank] and (last.file, last.line) == (frames[rank][0].file, frames[rank][0].line):
            operations[rank] = last.operation
    return RankLines(frames, operations, dump.sources)


def _by_lines(dump: Dump, lines: RankLines, lost: Iterable[RankFailure]) -> Divergence | None:
    """A collective of all ranks that some of them called in a branch of an `if` about the rank, and the others failed
    elsewhere: in one that C++ began by itself, as DDP's reductions are."""
    lost = list(lost)
    if not any(f.known is not None and f.known.id == _SIZE_MISMATCH for f in lost):
        return None
    ranks = tuple(sorted(f.rank.rank for f in lost))
    inside = {rank: branches(lines, rank) for rank in ranks}
    for key in dict.fromkeys(key for rank in ranks for key in inside[rank]):
        few = tuple(r for r in ranks if key in inside[r])
        many = tuple(r for r in ranks if key not in inside[r])
        seen = all(_of_all_ranks(dump, lines, r) for r in few) and all(lines.frames.get(r) for r in many)
        if many and seen:
            sides = (lines.operations[few[0]], few), ("another operation", many)
            found = _conditional(lines, few, many, Divergence(Kind.MISMATCH, few, many, sides, sure=False))
            if found is not None and found.others:
                return found
    return None


def _of_all_ranks(dump: Dump, lines: RankLines, rank: int) -> bool:
    """Whether it failed in a collective of the group of all ranks."""
    operation = lines.operations.get(rank)
    return operation is not None and not is_transfer(operation) and not dump.ranks[rank].calls[-1].group


def _by_operations(evidence: RunEvidence, dump: Dump, lost: list[RankFailure], lines: RankLines) -> Divergence | None:
    parted = parted_at_last(dump, [f.rank.rank for f in lost])
    if parted is not None and not parted.tie:
        return _as_called(evidence, parted)
    known = groups(dump, {record.rank: record for record in evidence.ranks})
    mismatch = earliest_mismatch(known, dump.signatures, {})
    if mismatch is not None:
        mismatch = _with_the_dead(mismatch, dump, lines)
        sides = tuple((str(side.signature), side.ranks) for side in mismatch.sides)
        apart = _failed_apart(lines, [side.ranks for side in mismatch.sides])
        kind = Kind.SHAPE if mismatch.same_operation and not apart else Kind.MISMATCH
        place = f"number {mismatch.sequence} in {mismatch.group.title}"
        return Divergence(kind, mismatch.few, mismatch.many, sides, place, sure=not mismatch.tie)
    aborted = [f.rank.rank for f in lost if f.known is not None and f.known.id == _SIZE_MISMATCH]
    found = _alone_against(aborted[0], known, dump, lines) if len(aborted) == 1 else None
    if parted is not None and (found is None or not found.sure):
        return _as_called(evidence, parted)
    return found


def _with_the_dead(mismatch: Mismatch, dump: Dump, lines: RankLines) -> Mismatch:
    """Also ranks whose recorder is gone, and that failed in the very call in which ranks of one side did."""
    came = {rank for side in mismatch.sides for rank in side.ranks}
    calls = {rank: replace(dump.ranks[rank].calls[-1], t=0) for rank in lines.operations}
    sides = []
    for side in mismatch.sides:
        own = {calls[rank] for rank in side.ranks if rank in calls}
        dead = [
            rank for rank, call in calls.items() if rank not in came and call in own and rank in mismatch.group.ranks
        ]
        sides.append(replace(side, ranks=tuple(sorted((*side.ranks, *dead)))))
    unread = sum(rank not in came and rank not in calls for rank in mismatch.group.ranks) if mismatch.unread else 0
    ordered = tuple(sorted(sides, key=lambda side: (-len(side.ranks), side.ranks)))
    return replace(mismatch, sides=ordered, unread=unread)


def _failed_apart(lines: RankLines, sides: Iterable[tuple[int, ...]]) -> bool:
    """The lines at which the ranks of each side failed are known, and no two sides share one."""
    failed_at = [{(f.file, f.line) for rank in ranks for f in lines.frames.get(rank, ())[:1]} for ranks in sides]
    return all(failed_at) and len(set().union(*failed_at)) == sum(map(len, failed_at))


def _received_more(dump: Dump, lost: Iterable[RankFailure], lines: RankLines) -> Divergence | None:
    """gloo ended a rank within a receive: the sender has sent more. Which of the two sizes is as meant is not known."""
    for rank in (f.rank.rank for f in lost if f.known is not None and f.known.id == _SIZE_MISMATCH):
        last = dump.ranks[rank].calls[-1] if rank in lines.operations else None
        if last is None or last.operation not in _RECEIVES or last.peer is None or last.peer not in dump.ranks:
            continue
        sender, half = last.peer, (last.number, last.group, rank)
        sent = (c for c in reversed(dump.ranks[sender].calls) if c.operation in _SENDS)
        other = next((c for c in sent if (c.number, c.group, c.peer) == half), None)
        if other is None:
            continue
        sides = (f"send to rank {rank}", (sender,)), (f"recv from rank {sender}", (rank,))
        ranks, called_at = tuple(sorted((rank, sender))), (other.at, last.at)
        place = f"transfer {last.number} from rank {sender} to rank {rank}"
        return Divergence(Kind.SHAPE, ranks, (), sides, place, sure=False, called_at=called_at)
    return None


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
    return Divergence(kind, few, many, parted.sides, place, sure=not parted.tie, called_at=parted.called_at)


def _alone_against(rank: int, known: list[Group], dump: Dump, lines: RankLines) -> Divergence | None:
    """gloo aborts who gets more than it expects: where all others agree, who expected less is the one that differs.
    Of two ranks either may be.

    The others' last operation may be marked finished: gloo takes note of one that fails, too.
    """
    for group in known:
        others = {r: log for r, log in group.logs.items() if r != rank and log.sequence}
        if rank not in group.ranks or not others or len(others) < len(group.ranks) - 1:
            continue
        newest = [(r, log, log.first_open if log.first_open is not None else -1) for r, log in others.items()]
        if len({(log.sequence[at], log.signature[at]) for _, log, at in newest}) != 1:
            continue
        many, (first, log, at) = tuple(sorted(others)), newest[0]
        apart = _LESS
        if rank in lines.operations:
            last = dump.ranks[rank].calls[-1]
            apart = call_words(last.operation, last.size, last.dtype)
        kind = Kind.MISMATCH if _failed_apart(lines, [(rank,), (first,)]) else Kind.SHAPE
        sides = (str(dump.signatures[log.signature[at]]), many), (apart, (rank,))
        place = f"number {log.sequence[at]} in {group.title}"
        if len(many) == 1:
            return Divergence(kind, tuple(sorted((rank, *many))), (), sides, place, sure=False)
        return Divergence(kind, (rank,), many, sides, place)
    return None
