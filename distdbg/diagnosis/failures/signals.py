"""Failures that are signals: killed from outside, crashed in native code, aborted after the script's end."""

from __future__ import annotations

import signal
from dataclasses import replace

from distdbg.diagnosis.failures.exceptions import exception_failure, from_fact, subject, uncaught_fact
from distdbg.diagnosis.failures.record import RankFailure, line_of_file
from distdbg.evidence.logs.messages import recognise
from distdbg.evidence.run import RankRecord
from distdbg.evidence.stacks.crash import Crash, fatal_error, terminate
from distdbg.evidence.stacks.tracebacks import ParsedException, TracebackFrame, shortened
from distdbg.model import CauseClass, Citation

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}


def by_signal(rank: RankRecord, in_flight: RankFailure | None) -> RankFailure:
    number = -(rank.exit_code or 0)
    uncaught = uncaught_fact(rank)
    if rank.script_finished and uncaught is None and number in _CRASHES:
        return _abort_at_exit(rank, number)
    if uncaught is not None and number in _CRASHES:  # it raised, and the interpreter's end then crashed
        return from_fact(rank, uncaught, late=False)
    if in_flight is not None:
        return in_flight
    if number in _CRASHES:
        return _thrown_by_native_code(rank, number) or _crash(rank, number)
    citation = _exit_citation(rank)
    return RankFailure(
        rank, "signal", "rank-killed", CauseClass.KILLED_OR_OOM, "certain", rank.ended, citation=citation, signal=number
    )


def _abort_at_exit(rank: RankRecord, number: int) -> RankFailure:
    said = terminate(rank.stderr_tail)
    line = line_of_file(rank, said[2]) if said else None
    words = " ".join(filter(None, said[:2])) if said else ""
    citation = Citation(rank.stderr_path, line, quote=f"terminate called {words}".strip() if said else "")
    return RankFailure(
        rank, "abort-at-exit", "abort-at-exit", CauseClass.OBSERVATION, "certain" if said else "likely",
        rank.script_ended or rank.ended, message=words, citation=citation, signal=number,
    )  # fmt: skip


def _thrown_by_native_code(rank: RankRecord, number: int) -> RankFailure | None:
    """An exception of C++ that nobody caught; or a message of torch's own threads before they abort the process."""
    said = terminate(rank.stderr_tail)
    error = None
    if said is not None and said[0]:
        error = ParsedException(said[0], said[1], (), f"terminate called: {said[0]}\n  {said[1]}", said[2])
    if error is None or recognise(subject(error)) is None:
        error = _known_last_line(rank) or error
    if error is None:
        return None
    crash = fatal_error(rank.stderr_tail)
    where = crash.where if crash is not None else None
    citation = Citation(rank.stderr_path, line_of_file(rank, error.line), quote=error.text)
    failure = exception_failure(rank, (error,), where, rank.ended, citation=citation, late=False)
    if failure.known is None and failure.cause_class != CauseClass.COMMUNICATION:
        failure = replace(failure, finding="rank-killed", kind="signal")
    return replace(failure, signal=number, frames=_users(crash))


def _known_last_line(rank: RankRecord) -> ParsedException | None:
    """The line of the rank's last words that the list of known messages has."""
    lines = rank.stderr_tail.split("\n")
    first = max(0, len(lines) - 60)
    known = recognise("\n".join(lines[first:]))
    if known is None:
        return None
    at = next((i for i in range(first, len(lines)) if known.match.search(lines[i])), first)
    return ParsedException("", lines[at].strip(), (), lines[at], at)


def _exit_citation(rank: RankRecord) -> Citation:
    return rank.exit_citation or Citation(rank.exit_path, None, quote=f'"exit_code": {rank.exit_code}')


def _crash(rank: RankRecord, number: int) -> RankFailure:
    crash = fatal_error(rank.stderr_tail)
    if crash is None:
        citation = _exit_citation(rank)
        where = None
    else:
        where = crash.where
        line = line_of_file(rank, crash.line)
        citation = Citation(rank.stderr_path, line, where=str(where) if where else None, quote=shortened(crash.text))
    return RankFailure(
        rank, "signal", "rank-killed", CauseClass.UNCAUGHT_ERROR, "certain", rank.ended,
        message=_terminate_words(rank), where=where, citation=citation,
        signal=number, frames=_users(crash),
    )  # fmt: skip


def _users(crash: Crash | None) -> tuple[TracebackFrame, ...]:
    return tuple(f for f in crash.frames if not f.is_library) if crash is not None else ()


def _terminate_words(rank: RankRecord) -> str:
    """`terminate called …` as the rank printed it, or the empty string."""
    said = terminate(rank.stderr_tail)
    return f"terminate called {' '.join(filter(None, said[:2]))}" if said else ""
