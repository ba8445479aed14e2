"""Failures of processes of which only lines of a log are known."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

from distdbg.diagnosis.failures.exceptions import from_fact
from distdbg.diagnosis.failures.record import RankFailure
from distdbg.diagnosis.failures.signals import by_signal
from distdbg.evidence.logs.events import CRASH
from distdbg.evidence.run import UNKNOWN_RANK, ExceptionFact, RankRecord
from distdbg.findings.scheduler import OUTSIDE
from distdbg.model import CauseClass

#: Somebody or something ended the job: what its ranks say afterwards comes of that.
_ENDS = OUTSIDE - {"launcher-failed"}
#: What launchers say of a job's end: a consequence where a process shows an error of its own.
_WEAK = {"job-cancelled", "signal-from-outside", "launcher-failed", "requeued"}
#: type and message, as faulthandler prints them
_ABORTED = (CRASH, "Aborted")
#: Classes of errors that are consequences once the job had been ended.
_CAUSES = (CauseClass.UNCAUGHT_ERROR, CauseClass.KILLED_OR_OOM)


def failure_in_log(rank: RankRecord) -> RankFailure | None:
    """Of all errors in its log the one that is nearest to a cause, of equals the first; else the signal that ended it.

    A bare exit code is none: the log need not have the process's own words. An abort is the end of a process that has
    told its error before, where it told one: of what NCCL's watchdog ends a process for, as an example.
    """
    if rank.ended_by_watchdog and all(map(_is_abort, rank.exceptions)):
        rank = replace(rank, exceptions=())
    if (rank.exit_code or 0) < 0 and rank.exceptions and all(fact.type == CRASH for fact in rank.exceptions):
        return _judged(by_signal(replace(rank, exceptions=()), None))
    told = [fact for fact in rank.exceptions if not _is_abort(fact)]
    said = [_judged(from_fact(rank, fact, late=False)) for fact in told or rank.exceptions]
    if said:
        lead = min(said, key=lambda f: (int(f.cause_class), f.t or float("inf")))
        reason = next((f for f in said if f.finding == "host-oom"), None)
        return reason if reason is not None and lead.finding == "rank-killed" else lead
    if rank.ended_by_watchdog and rank.exit_code == -signal.SIGABRT:
        return None
    if (rank.exit_code or 0) < 0 and rank.asked_to_stop is None:
        return _judged(by_signal(rank, None))
    return None


def _is_abort(fact: ExceptionFact) -> bool:
    """The abort itself: by faulthandler, or a C++ exception without a message, as when two threads throw at once."""
    return (fact.type, fact.message) == _ABORTED or ("::" in fact.type and not fact.message)


def _judged(failure: RankFailure) -> RankFailure:
    """Text that others wrote shows what was printed, and not all that happened: nothing is certain by it alone."""
    changed = replace(failure, t=failure.t or None)
    if failure.type == CRASH:
        changed = replace(changed, finding="rank-killed")
    if failure.finding in _ENDS:
        changed = replace(changed, cause_class=CauseClass.KILLED_OR_OOM)
    if failure.finding in _WEAK:
        changed = replace(changed, cause_class=CauseClass.VICTIM)
    if failure.confidence == "certain" and (failure.rank.exit_code is None or failure.rank.rank == UNKNOWN_RANK):
        changed = replace(changed, confidence="likely")
    if failure.known is None and failure.kind == "line":
        changed = replace(changed, confidence="possible")
    return changed


def after_the_end(found: Sequence[RankFailure]) -> list[RankFailure]:
    """What was said after the job had been ended is a consequence of that."""
    ends = [f.t for f in found if f.finding in _ENDS and f.rank.from_log and f.t is not None]
    if not ends:
        return list(found)
    first = min(ends)
    return [
        replace(f, cause_class=CauseClass.VICTIM)
        if f.rank.from_log and f.finding not in _ENDS and f.t is not None and f.t > first and f.cause_class in _CAUSES
        else f
        for f in found
    ]


def without_repeats(found: Sequence[RankFailure]) -> list[RankFailure]:
    """Without those of unknown ranks that a known rank, of the same host where both say it, shows too."""
    known = [f for f in found if f.rank.rank != UNKNOWN_RANK]
    return [f for f in found if f.rank.rank != UNKNOWN_RANK or not any(_same(f, other) for other in known)]


def _same(one: RankFailure, other: RankFailure) -> bool:
    hosts = {one.rank.host.partition(".")[0], other.rank.host.partition(".")[0]} - {""}
    tells_as_much = int(other.cause_class) <= int(one.cause_class)
    alike = one.finding == other.finding and one.finding != "rank-exception" and tells_as_much
    return len(hosts) < 2 and (alike or (one.headline == other.headline and one.where == other.where))
