"""Ranks wait for one another in a circle: in different groups, or in send and recv."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import hosts, who
from distdbg.checks._stuck import citations, short, since, step
from distdbg.evidence.divergence import divergence_of
from distdbg.evidence.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding, FindingDoc, fold_ranks

DOCS = (
    FindingDoc(
        id="group-deadlock",
        severity="error",
        title="ranks wait for one another in a circle",
        meaning="Each rank of the circle has begun an operation that another one of it must take part in, and none can "
        "go on: groups that are used in different orders, sends that all come before the receives, a receive whose "
        "sender waits for the receiver elsewhere.",
        how_seen="Each rank's open operation and who has not come to it, by the flight recorders and the calls of send "
        "and recv; following these from rank to rank leads back to the start, and nobody in the circle does "
        "anything else.",
        remedy="Use the groups in one order on all ranks. For exchanges between neighbours use batch_isend_irecv, or "
        "let even ranks send first and odd ranks receive first.",
        source="https://pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv",
    ),
)
_MOST_STEPS = 8
_BLIND = " No recorder tells their groups: ranks that call other collectives of the same group look like this, too."
_EITHER = " One of them may wait for another rank, too: a receive may have been begun long ago, for later."


def check(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not hang.stands or divergence_of(evidence) is not None:
        return
    for circle in hang.circles:
        waits = [wait for wait in hang.waits if not set(circle).isdisjoint(wait.waiting)]
        blind, either = any(wait.blind for wait in waits), any(wait.either for wait in waits)
        yield Finding(
            id="group-deadlock",
            severity="error",
            confidence="likely" if blind or either or hang.dump.missing else "certain",
            summary=f"{who(evidence, circle)} wait for one another in a circle: {_told(hang, circle)}",
            cause=_lines(hang, circle) + (_BLIND if blind else "") + (_EITHER if either else ""),
            remedy=DOCS[0].remedy,
            ranks=circle,
            nodes=hosts(evidence, circle),
            step=step(hang, circle),
            evidence=citations(hang, circle, ()),
            cause_class=CauseClass.STUCK,
            first_seen=since(hang, hang.waits_for(circle)),
        )


def _told(hang: Hang, circle: tuple[int, ...]) -> str:
    inside = set(circle)
    parts = []
    for wait in hang.waits:
        waiting = tuple(r for r in wait.waiting if r in inside)
        awaited = tuple(r for r in wait.awaited if r in inside)
        if waiting and awaited:
            verb = "waits" if len(waiting) == 1 else "wait"
            parts.append(f"{fold_ranks(waiting)} {verb} for {fold_ranks(awaited)} in {wait.what}")
    more = f" … and {len(parts) - _MOST_STEPS} more" if len(parts) > _MOST_STEPS else ""
    return "; ".join(parts[:_MOST_STEPS]) + more


def _lines(hang: Hang, circle: tuple[int, ...]) -> str:
    places: dict[str, list[int]] = {}
    for rank in circle:
        frame = hang.standings[rank].frame
        if frame is not None:
            text = hang.dump.line(frame.file, frame.line)
            places.setdefault(f"{short(frame)}{f': {text}' if text else ''}", []).append(rank)
    return " ".join(
        f"{'Rank' if len(r) == 1 else 'Ranks'} {fold_ranks(r)} at {p}." for p, r in list(places.items())[:6]
    )
