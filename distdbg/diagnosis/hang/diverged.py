"""Ranks are in different collectives, or in one with different sizes: which are the few, and what sets them apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import (
    REMEDY_OF_WHAT_RAISED,
    citations,
    handled,
    raised,
    sides_text,
    since,
    step,
    waited,
)
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.timeline.call_lines import ModelPlace
from distdbg.diagnosis.waits.divergence import divergence_of
from distdbg.diagnosis.waits.divergence_record import Divergence, Kind, raised_apart
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.diagnosis.waits.loop_exits import LoopExit
from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.calls import Call
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks.threads import Frame
from distdbg.findings import entry
from distdbg.model import CauseClass, Citation, Finding
from distdbg.wording import plural

#: Maximum number of statements that leave one loop and are named in a finding.
_MAX_WAYS_NAMED = 4
#: Maximum number of ranks whose two threads are named in a finding; the other ranks mostly have the same two.
_MAX_RANKS_WITH_TWO_THREADS = 2
_REMEDY_FOR_TWO_THREADS = (
    "Give the thread a process group of its own (`new_group`), or let it begin its collectives at a point of the step "
    "that is the same on every rank and wait for it before the main thread uses the group again."
)


# A rank is stuck on a lock if its main thread waits for the thread that makes the calls of torch.distributed.
@rule(*(kind.value for kind in Kind), explains=("stuck-on-lock",))
def diverged(evidence: RunEvidence) -> Iterable[Finding]:
    """The ranks' last calls differ: while they wait, or when one of them has ended because of it."""
    hang, found = hang_of(evidence), divergence_of(evidence)
    if found is None:
        return
    kind, remedy = found.kind, entry(found.kind.value).remedy
    error = _error(evidence, found)
    if evidence.dump is not None and evidence.dump.reason == "death":
        yield _at_death(evidence, evidence.dump, found, remedy)
    if hang is None or not hang.stands:
        return
    detail, waits = _detail(evidence, found), waited(evidence, hang, hang.waits_for(found.ranks))
    cause = [_two_threads(hang), detail, _modules(evidence, hang.dump, found), handled(evidence, found.ranks), waits]
    yield build_finding(
        kind.value,
        severity="error",
        confidence="likely" if not found.sure or hang.dump.missing else "certain",
        summary=_summary(evidence, hang, found),
        cause=" ".join(filter(None, cause)),
        remedy=_REMEDY_FOR_TWO_THREADS if hang.of_threads else REMEDY_OF_WHAT_RAISED if error else remedy,
        ranks=found.ranks,
        step=step(hang, found.ranks),
        evidence=citations(hang, found.ranks, found.others),
        cause_class=CauseClass.STUCK,
        first_seen=since(hang, hang.waits),
        side="host" if any(wait.on_device for wait in hang.waits) else None,
        place=hang.place_of(hang.waits_for(found.ranks)),
    )


def _at_death(evidence: RunEvidence, dump: Dump, found: Divergence, remedy: str) -> Finding:
    """A desync that a rank died of: nobody stands anywhere any more, but the calls are kept."""
    subject = who(evidence, found.ranks)
    called_at = found.called_at or ("",) * len(found.sides)
    sides = sides_text(
        (f"{operation}{f' at {line}' if line else _called(evidence, dump, ranks)}", ranks)
        for (operation, ranks), line in zip(found.sides, called_at, strict=True)
    )
    place = f" ({found.place})" if found.place else ""
    verb, what = "came", "with another size or type"
    if found.kind is not Kind.SHAPE:
        verb = plural("was", found.ranks)
        what = "in another collective" if found.others else "in different collectives"
    others = f" than {who(evidence, found.others)}" if found.others else _why_no_few(found)
    if found.kind is Kind.RANK_CONDITIONAL:
        what = "alone in another collective" if found.others else what
        others = ("" if found.others else others) + _because(found)
    dead = who(evidence, tuple(sorted(f.rank.rank for f in failures(evidence))))
    ends = (
        f"{dead.capitalize()} failed because of it: gloo ends a rank that gets more bytes than it expects, and its "
        "peers lose the connection."
    )
    return build_finding(
        found.kind.value,
        severity="error",
        confidence="certain" if _recorded(evidence, found) else "likely",
        summary=f"{subject} {verb} {what}{others}: {sides}{place}",
        cause=" ".join(filter(None, (_detail(evidence, found), _modules(evidence, dump, found), ends))),
        remedy=remedy,
        ranks=found.ranks,
        evidence=tuple(Citation(f"{dump.path}/recorder/{r:05d}.1.json") for r in (*found.ranks, *found.others[:1])
                       if r in dump.ranks and dump.ranks[r].recorder is not None),
        cause_class=CauseClass.UNCAUGHT_ERROR,
        first_seen=min((f.t for f in failures(evidence) if f.t is not None), default=None),
    )  # fmt: skip


def _recorded(evidence: RunEvidence, found: Divergence) -> bool:
    """Every rank has recorded what it called there, gloo reports other sizes than expected, and no rank is chosen
    of two sides of equal size."""
    came = {rank for _, ranks in found.sides for rank in ranks}
    reported = any(f.known is not None and f.known.finding == Kind.SHAPE.value for f in failures(evidence))
    return reported and came == {record.rank for record in evidence.ranks} and (found.sure or not found.others)


def _called(evidence: RunEvidence, dump: Dump, ranks: Iterable[int]) -> str:
    """The line of the user's that one of `ranks` stood in when it failed, else that of the last call it made."""
    where = {f.rank.rank: f.where for f in failures(evidence) if f.where is not None}
    for rank in ranks:
        calls = dump.ranks[rank].calls if rank in dump.ranks else ()
        if rank in where:
            return f" at {where[rank].file.rpartition('/')[2]}:{where[rank].line}"
        if calls and calls[-1].file:
            return f" at {calls[-1].file.rpartition('/')[2]}:{calls[-1].line}"
    return ""


def _summary(evidence: RunEvidence, hang: Hang, found: Divergence) -> str:
    subject = who(evidence, found.ranks)
    if not found.others:
        apart = f"{_why_no_few(found)}{_because(found)}"
        different = "different collectives"
        if found.kind is Kind.SHAPE:
            different = "one collective with different sizes or types"
        return f"{subject} are in {different}{apart}: {_sides(hang, found)}"
    verb = plural("is", found.ranks)
    if found.kind is Kind.RANK_CONDITIONAL:
        return f"{subject} {verb} alone in another collective{_because(found)}: {_sides(hang, found)}"
    if found.kind is Kind.UNEVEN:
        return f"{subject} {verb} out of data, the others are not: {_sides(hang, found)}"
    if found.kind is Kind.UNUSED:
        return f"{subject} did not use all parameters, and the others wait for the gradients: {_sides(hang, found)}"
    what = "with another size or type" if found.kind is Kind.SHAPE else "in another collective"
    verb = plural("comes", found.ranks) if found.kind is Kind.SHAPE else verb
    if error := _error(evidence, found):
        return f"{subject} raised {error} and {verb} {what} than {who(evidence, found.others)}: {_sides(hang, found)}"
    return f"{subject} {verb} {what} than {who(evidence, found.others)}: {_sides(hang, found)}"


def _why_no_few(found: Divergence) -> str:
    """Say why no side is named as the smaller one."""
    counts = [len(ranks) for _, ranks in found.sides]
    return ", equally many in each" if counts[0] == counts[1] else ", and the other ranks were not read"


def _because(found: Divergence) -> str:
    """`, because of `if rank == 0` at train.py:30`; empty without a condition."""
    return f", because of `{found.condition.text}` at {found.condition_line}" if found.condition is not None else ""


def _error(evidence: RunEvidence, found: Divergence) -> str:
    """What the few have raised, where that and nothing else parts them from the others; else empty."""
    apart = found.kind in (Kind.MISMATCH, Kind.SHAPE) and raised_apart(evidence, found.ranks, found.others)
    return raised(evidence, found.ranks) if apart and found.others else ""


def _sides(hang: Hang, found: Divergence) -> str:
    """Each side's operation, ranks and line."""
    parts = []
    for operation, ranks in found.sides:
        frames = [_frame_of_side(hang, r) for r in ranks if r in hang.standings]
        lines = sorted({frame.short for frame in frames if frame is not None})
        parts.append((f"{operation}{f' at {lines[0]}' if lines else ''}", ranks))
    return sides_text(parts) + (f" ({found.place})" if found.place else "")


def _frame_of_side(hang: Hang, rank: int) -> Frame | None:
    return hang.of_threads[rank].frames[0] if rank in hang.of_threads else hang.frame_of(rank)


def _detail(evidence: RunEvidence, found: Divergence) -> str:
    records = {record.rank: record for record in evidence.ranks}
    if found.kind is Kind.UNUSED:
        return " ".join(_without(records[r]) for r in found.ranks if r in records)
    if found.maps_used:
        verb = plural("reduces", found.maps_used)
        return (
            f"{who(evidence, found.maps_used).capitalize()} {verb} DDP's map of used parameters (int32). DDP does so "
            "only with find_unused_parameters=True, or with static_graph=True in the first step: the other side has "
            "constructed DDP with other options."
        )
    if found.frame is not None and found.condition is not None:
        named = found.kind is Kind.RANK_CONDITIONAL  # by the summary
        condition = "that" if named else f"`{found.condition.text}` ({found.condition_line})"
        holds = "does not hold" if found.condition.otherwise else "holds"
        return f"{found.frame.short} runs only where {condition} {holds}."
    if found.loop_exit is not None:
        return _left_the_loop(evidence, found.loop_exit)
    if found.times_before:
        left_out = next(operation for operation, ranks in found.sides if ranks == found.others)
        return (
            f"After the same operations all of them called {left_out} {found.times_before} times before: "
            f"{who(evidence, found.ranks)} did not call it this time."
        )
    return ""


def _two_threads(hang: Hang) -> str:
    """Say which ranks use one group in two threads, whose order nothing fixes; empty if none does."""
    return " ".join(
        f"On rank {rank} two threads use {operation.group} at once, and nothing fixes their order: its "
        f"{operation.thread} is in {operation.function} at {operation.frames[0].short}, and its main thread in "
        f"{operation.newer}{f' at {frame.short}' if (frame := hang.standings[rank].frame) is not None else ''}."
        for rank, operation in sorted(hang.of_threads.items())[:_MAX_RANKS_WITH_TWO_THREADS]
    )


def _left_the_loop(evidence: RunEvidence, loop: LoopExit) -> str:
    file = loop.file.rpartition("/")[2]
    left, inside = who(evidence, loop.left), who(evidence, loop.inside)
    ways = [f"`{way.text}` at {file}:{way.line}{f' (`{way.condition}`)' if way.condition else ''}" for way in loop.ways]
    more = len(ways) - _MAX_WAYS_NAMED
    ways = [*ways[:_MAX_WAYS_NAMED], *([f"{more} more"] if more > 0 else [])]
    ways += ["its own end"] if loop.may_end or not ways else []
    return (
        f"{left[:1].upper()}{left[1:]} {plural('has', loop.left)} left the loop at {file}:{loop.line} "
        f"(`{loop.text}`), in which {inside} still {plural('is', loop.inside)}. "
        f"What leaves it: {', '.join(ways)}."
    )


#: No rank is further ahead of another in a group whose collectives they make together.
_MAX_CALLS_COMPARED = 256


@dataclass(frozen=True)
class ModulesApart:
    """`number` of the group's collectives; `one` and `other` are the places of the two ranks."""

    number: int
    one: ModelPlace
    other: ModelPlace


def modules_apart(dump: Dump, one: int, other: int) -> ModulesApart | None:
    """Return the first collective of FSDP2 at which two ranks were in different modules, by the calls of each.

    Layers of one size make the same operations: a rank that leaves one out pairs wrongly, and waits only later. None if
    they agree, and if it is not known that they agreed before.
    """
    ours, theirs = _of_modules(dump, one), _of_modules(dump, other)
    agreed: set[str] = set()
    for (group, number), call in ours.items():
        if (there := theirs.get((group, number))) is None:
            continue
        if (call.module, call.phase) == (there.module, there.phase):
            agreed.add(group)
        elif group in agreed:
            return ModulesApart(number, ModelPlace(call.module, call.phase), ModelPlace(there.module, there.phase))
    return None


def _of_modules(dump: Dump, rank: int) -> dict[tuple[str, int], Call]:
    """By group and number, the oldest first."""
    calls = dump.ranks[rank].calls[-_MAX_CALLS_COMPARED:] if rank in dump.ranks else ()
    return {(call.group, call.number): call for call in calls if call.module and call.number}


def _modules(evidence: RunEvidence, dump: Dump, found: Divergence) -> str:
    """Where in the model they parted, which may be before the operation that differs."""
    few, many = (found.ranks, found.others) if found.others else (found.sides[0][1], found.sides[-1][1])
    apart = modules_apart(dump, few[0], many[0])
    if apart is None:
        return ""
    return (
        f"They parted in FSDP2's collective {apart.number}: it was{apart.one} on {who(evidence, few)}, and"
        f"{apart.other} on {who(evidence, many)}."
    )


def _without(record: RankRecord) -> str:
    """All parameters without a gradient are those of an optimizer that has set them to None since."""
    told = record.without_gradient
    if told is None or not 0 < told.count < told.parameters:
        return f"Rank {record.rank} has ended its backward without the reduction that its forward was prepared for."
    names = ", ".join(told.names[:5]) + (", …" if told.count > 5 else "")
    return f"Rank {record.rank} has no gradient for {told.count} of {told.parameters} parameters: {names}."
