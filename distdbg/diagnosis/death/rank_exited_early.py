"""A rank left with exit code 0 while its siblings still needed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.failures.told_by_torch import absent_ranks, group_of_last_call
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks.tracebacks import TracebackFrame
from distdbg.model import CauseClass, Citation, Confidence, Finding

#: An agent notes the end of a process a little after its peers have felt it; and a script that destroys its process
#: groups in its last lines ends a little after that.
_LATE_NOTE_S = 0.5
#: Kinds of message that tell of a wait for somebody, not of a peer that is gone.
_TIMEOUTS = {"monitored-barrier", "gloo-timeout", "store-timeout"}
#: `script_end_how` of a script that ended itself by a call, and that in words.
_CALLS = {"SystemExit": "sys.exit(0)", "os._exit": "os._exit(0)"}
_WAYS = {**_CALLS, "returned": "the end of its script"}


@rule("rank-exited-early")
def rank_exited_early(evidence: RunEvidence) -> Iterable[Finding]:
    found = failures(evidence)
    lost = [f for f in found if f.cause_class is CauseClass.COMMUNICATION]
    if not lost or any(f.cause_class < CauseClass.EARLY_EXIT for f in found):
        return
    first = min(lost, key=lambda f: (f.t or float("inf"), f.rank.rank))
    aborted = {f.rank.rank for f in found if f.kind == "abort-at-exit"}
    needed = _needed(evidence, first)
    early = [
        r
        for r in evidence.ranks
        if (r.own_exit_code == 0 or r.rank in aborted) and r.rank in needed.ranks and _left_before(r, first)
    ]
    if not early or len(early) + len(lost) > len(evidence.ranks):
        return
    ranks = tuple(sorted(r.rank for r in early))
    how = {(_WAYS.get(r.script_end_how, "exit code 0"), r.script_end_where) for r in early}
    way, place = next(iter(how)) if len(how) == 1 else ("exit code 0", None)
    at = f" at {TracebackFrame(*place)}" if place is not None else ""
    others = tuple(sorted(f.rank.rank for f in lost))
    step = early[0].step
    yield build_finding(
        "rank-exited-early",
        confidence=_confidence(early, lost, first) if needed.known else "likely",
        summary=f"{who(evidence, ranks)} left by {way}{at}{f' in step {step}' if step else ''} while "
        f"{who(evidence, others)} still needed {'it' if len(ranks) == 1 else 'them'}",
        cause=f"After that, {who(evidence, others)} failed: {_told(first)}",
        ranks=ranks,
        step=step,
        evidence=(
            *(
                Citation(
                    r.exit_path,
                    None,
                    str(TracebackFrame(*r.script_end_where)) if r.script_end_where else None,
                    f'"exit_code": {r.exit_code}',
                )
                for r in early[:3]
            ),
            *((first.citation,) if first.citation else ()),
        ),
        cause_class=CauseClass.EARLY_EXIT,
        first_seen=min(_left(r) for r in early),
    )


@dataclass(frozen=True)
class _Needed:
    """The ranks that one may have waited for, and whether all of them were surely needed."""

    ranks: frozenset[int]
    known: bool


def _needed(evidence: RunEvidence, first: RankFailure) -> _Needed:
    """Members of the group that it failed in: that of its last call, where it failed in that; else any of its groups.

    Who waits for something until its time is up has often begun no new call: then the last one's group is meant, too.
    """
    everybody = frozenset(r.rank for r in evidence.ranks)
    had = evidence.dump.ranks.get(first.rank.rank) if evidence.dump is not None else None
    call = had.calls[-1] if had is not None and had.calls else None
    made = [frozenset(ranks) for ranks in first.rank.groups.values()]
    waited = first.known is not None and first.known.id in _TIMEOUTS
    place = (first.where.file, first.where.line) if first.where is not None else None
    there = call is not None and (call.file, call.line) == place
    if call is not None and (there or waited):
        group = group_of_last_call(evidence, first)
        if group is not None:
            return _Needed(frozenset(absent_ranks(first, group) or group), there)
    return _Needed(everybody, bool(made) and all(group >= everybody for group in made) and not waited)


def _told(failure: RankFailure) -> str:
    return failure.known.symptom if failure.known else failure.headline


def _left(rank: RankRecord) -> float:
    return rank.script_ended or rank.ended or float("inf")


def _left_before(rank: RankRecord, first: RankFailure) -> bool:
    if (rank.asked_to_stop is not None and not rank.left_by_itself) or any(e.uncaught for e in rank.exceptions):
        return False
    return first.t is not None and _left(rank) <= first.t + _LATE_NOTE_S


def _confidence(early: list[RankRecord], lost: list[RankFailure], first: RankFailure) -> Confidence:
    """Certain where it left by sys.exit or os._exit, which no script that has finished needs, or steps behind."""
    if any(_left(r) > (first.t or 0.0) for r in early):
        return "likely"
    steps = [f.rank.step for f in lost if f.rank.step is not None]
    behind = steps and all(r.step is not None and r.step < max(steps) for r in early)
    said = all(r.script_ended is not None for r in early)
    if said and (behind or all(r.script_end_how in _CALLS for r in early)):
        return "certain"
    return "likely"
