"""How each rank failed: one record a rank, from its facts, its last words and its exit code, in that order of trust."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from distdbg.diagnosis.failures.exceptions import (
    from_error_file,
    from_fact,
    from_output,
    in_flight,
    plain_name,
    uncaught_fact,
    words_after,
)
from distdbg.diagnosis.failures.record import RankFailure
from distdbg.diagnosis.failures.signals import by_signal
from distdbg.evidence.logs.messages import recognise
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import CauseClass, Citation

__all__ = ["RankFailure", "failure_of", "failures", "weighed"]

#: How a rank ends that was asked to: nothing of its own.
_OBEDIENCE = {"KeyboardInterrupt", "SystemExit", "SignalException"}
_ORDERED_ENDS = {
    signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2
}  # fmt: skip
_OWN = (CauseClass.UNCAUGHT_ERROR, CauseClass.KILLED_OR_OOM)
_CLOSING = re.compile(r"Sending process (\d{1,9}) closing signal SIG")


@lru_cache(maxsize=1)
def failures(evidence: RunEvidence) -> tuple[RankFailure, ...]:
    """Every rank that failed by itself, by rank. Ranks that merely obeyed a SIGTERM are not among them."""
    told = {(node.node_rank, pid) for node in evidence.nodes for pid in _told_by_torchrun(node.torchrun_tail)}
    found = (failure_of(_as_told(rank, told)) for rank in evidence.ranks)
    return tuple(weighed([f for f in found if f is not None]))


def weighed(found: Sequence[RankFailure]) -> Iterable[RankFailure]:
    """An error that may have been handled is a cause only where no other rank has one of its own; beside a mere exit
    code, which a rank can give itself when its peers are lost, only where no two ranks have the same."""
    causes = [f for f in found if f.otherwise is None and f.cause_class in _OWN]
    firm = any(f.kind != "exit" for f in causes)
    times = Counter((f.type, f.where) for f in found if f.otherwise is not None)
    for failure in found:
        doubted = firm or (causes and times[failure.type, failure.where] > 1)
        yield failure.otherwise if doubted and failure.otherwise is not None else failure


def _told_by_torchrun(said: str) -> set[int]:
    """Processes that torchrun itself ended, by its own words: on another node than the one that failed first."""
    return {int(pid) for pid in _CLOSING.findall(said)}


def _as_told(rank: RankRecord, told: set[tuple[int, int]]) -> RankRecord:
    if rank.asked_to_stop is None and (rank.node_rank, rank.pid) in told and -(rank.exit_code or 0) in _ORDERED_ENDS:
        return replace(rank, asked_to_stop=rank.ended or 0.0)
    return rank


def failure_of(rank: RankRecord) -> RankFailure | None:
    """None for a rank that succeeded, runs, is not known, or did as it was told."""
    handled = in_flight(rank)
    stopped = rank.asked_to_stop is not None
    code = rank.exit_code
    if code is not None and code < 0 and not (stopped and -code in _ORDERED_ENDS):
        return _signalled(rank, handled)
    uncaught = uncaught_fact(rank)
    if uncaught is not None and code != 0:
        late = stopped and uncaught.t > (rank.asked_to_stop or 0)
        return None if late and plain_name(uncaught.type) in _OBEDIENCE else from_fact(rank, uncaught, late)
    if handled is not None and (stopped or code != 0):
        return handled
    if (ended_with(rank) or 0) <= 0:
        return None
    printed = from_output(rank, stopped)
    if printed is not None and printed.cause_class in _OWN and rank.script_end_how == "SystemExit":
        return _ended_itself(rank, printed)
    return printed or from_error_file(rank) or (None if stopped else _bare_exit(rank))


def _ended_itself(rank: RankRecord, printed: RankFailure) -> RankFailure:
    """sys.exit is no error that was raised: a traceback above it was handled, and may be old."""
    if not (words := words_after(rank)):
        return replace(printed, confidence="possible", doubt="the script caught it, printed it and called sys.exit")
    at = f" at {printed.where}" if printed.where else ""
    doubt = f"above its last words stands {printed.headline[:200]}{at}, which it had handled"
    return replace(_bare_exit(rank, words), confidence="likely", doubt=doubt)


def ended_with(rank: RankRecord) -> int | None:
    """The exit code; what the script had given to sys.exit, where torchrun collected the process before anybody could
    read it; None for a rank that runs."""
    if rank.exit_code is None and rank.ended is not None:
        return rank.script_exit_code
    return rank.exit_code


def _signalled(rank: RankRecord, handled: RankFailure | None) -> RankFailure | None:
    if rank.exit_code == -signal.SIGABRT and rank.script_exit_code:  # it crashed on its way out
        return _bare_exit(rank)
    ended = by_signal(rank, handled)
    if rank.asked_to_stop is None or ended.kind == "exception":
        return ended
    return replace(ended, cause_class=CauseClass.VICTIM) if ended.kind == "signal" else None


def _bare_exit(rank: RankRecord, words: Sequence[str] | None = None) -> RankFailure:
    """A non-zero exit code and no traceback that tells why: sys.exit(7), os._exit(1), a program that is not Python."""
    said = words or rank.stderr_tail.rstrip().split("\n")
    lines = [line for line in said[-12:] if line.strip()]
    known = recognise("\n".join(lines)) if lines else None
    communication = known is not None and known.communication
    code = rank.script_exit_code or rank.exit_code
    how = f"sys.exit({code})" if rank.script_end_how == "SystemExit" else f"exit code {code}"
    first = rank.stderr_first_line + rank.stderr_tail.rstrip().count("\n") if rank.stderr_first_line else None
    citation = Citation(rank.stderr_path, first, quote="\n".join(lines)) if lines else Citation(rank.exit_path)
    return RankFailure(
        rank, "exit", known.finding if known else "rank-exception",
        CauseClass.COMMUNICATION if communication else CauseClass.UNCAUGHT_ERROR, "likely" if known else "certain",
        rank.script_ended or rank.ended, message=how, known=known, citation=citation,
    )  # fmt: skip
