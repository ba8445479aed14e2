"""Ranks wait for one another in a circle: in different groups, or in send and recv."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import citations, since, step
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.waits.divergence import divergence_of
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding, fold_ranks
from distdbg.wording import name_ranks, plural

_MOST_STEPS = 8
_BLIND = " No recorder tells their groups: ranks that call other collectives of the same group look like this, too."
_TEXT = " Which rank sets the key is read from the text of the scripts."
_EITHER = " One of them may wait for another rank, too: a receive may have been begun long ago, for later."


@rule("group-deadlock")
def group_deadlock(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not hang.stands or divergence_of(evidence) is not None:
        return
    for circle in hang.circles:
        waits = [wait for wait in hang.waits if not set(circle).isdisjoint(wait.waiting)]
        blind, either = any(wait.by_stacks for wait in waits), any(wait.either for wait in waits)
        text = any(wait.by_text for wait in waits)
        yield build_finding(
            "group-deadlock",
            confidence="likely" if blind or either or text or hang.dump.missing else "certain",
            summary=f"{who(evidence, circle)} wait for one another in a circle: {_told(hang, circle)}",
            cause=_lines(hang, circle)
            + (_BLIND if blind else "")
            + (_EITHER if either else "")
            + (_TEXT if text else ""),
            ranks=circle,
            step=step(hang, circle),
            evidence=citations(hang, circle, ()),
            cause_class=CauseClass.STUCK,
            first_seen=since(hang, hang.waits_for(circle)),
            side="host" if any(wait.on_device for wait in waits) else None,
            place=hang.place_of(waits),
        )


def _told(hang: Hang, circle: tuple[int, ...]) -> str:
    inside = set(circle)
    parts = []
    for wait in hang.waits:
        waiting = tuple(r for r in wait.waiting if r in inside)
        awaited = tuple(r for r in wait.awaited if r in inside)
        if waiting and awaited:
            parts.append(f"{fold_ranks(waiting)} {plural('waits', waiting)} for {fold_ranks(awaited)} in {wait.what}")
    more = f" … and {len(parts) - _MOST_STEPS} more" if len(parts) > _MOST_STEPS else ""
    return "; ".join(parts[:_MOST_STEPS]) + more


def _lines(hang: Hang, circle: tuple[int, ...]) -> str:
    places: dict[str, list[int]] = {}
    for rank in circle:
        frame = hang.frame_of(rank)
        if frame is not None:
            text = hang.dump.line(frame.file, frame.line)
            places.setdefault(f"{frame.short}{f': {text}' if text else ''}", []).append(rank)
    return " ".join(f"{name_ranks(r).capitalize()} at {p}." for p, r in list(places.items())[:6])
