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
from distdbg.diagnosis.failures.logged import after_the_end, failure_in_log, without_repeats
from distdbg.diagnosis.failures.record import RankFailure
from distdbg.diagnosis.failures.signals import by_signal
from distdbg.evidence.logs.messages import recognise
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks.tracebacks import TracebackFrame
from distdbg.model import CauseClass, Citation

__all__ = ["RankFailure", "failure_of", "failures", "weighed"]

#: How a rank ends that was asked to: nothing of its own.
_OBEDIENCE = {"KeyboardInterrupt", "SystemExit", "SignalException"}
_ORDERED_ENDS = {
    signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2
}  # fmt: skip
_OWN = (CauseClass.UNCAUGHT_ERROR, CauseClass.KILLED_OR_OOM)
#: Processes that torchrun itself ended, by its own words: on another node than the one that failed first.
_CLOSING = re.compile(r"Sending process (\d{1,9}) closing signal SIG")


@lru_cache(maxsize=1)
def failures(evidence: RunEvidence) -> tuple[RankFailure, ...]:
    """Every rank that failed by itself, by rank. Ranks that merely obeyed a SIGTERM are not among them."""
    told = {(node.node_rank, pid) for node in evidence.nodes for pid in map(int, _CLOSING.findall(node.torchrun_tail))}
    killed = {node.node_rank for node in evidence.nodes if (node.torchrun_exit_code or 0) < 0}
    found = (failure_of(_as_told(rank, told, killed)) for rank in (*evidence.ranks, *evidence.unattributed))
    return tuple(weighed(without_repeats(after_the_end([f for f in found if f is not None]))))


def weighed(found: Sequence[RankFailure]) -> Iterable[RankFailure]:
    """An error that may have been handled is a cause only where no other rank has one of its own; beside a mere exit
    code, which a rank can give itself when its peers are lost, only where no two ranks have the same."""
    causes = [f for f in found if f.otherwise is None and f.cause_class in _OWN]
    firm = any(f.kind != "exit" for f in causes)
    times = Counter((f.type, f.where) for f in found if f.otherwise is not None)
    for failure in found:
        doubted = firm or (causes and times[failure.type, failure.where] > 1)
        yield failure.otherwise if doubted and failure.otherwise is not None else failure


def _as_told(rank: RankRecord, told: set[tuple[int, int]], torchrun_killed: set[int]) -> RankRecord:
    """Note that a rank was asked to stop, as torchrun reported. If torchrun was killed, the kernel sends its ranks
    SIGTERM (worker/process_end.py), and torchrun may have done so without a report."""
    if rank.node_rank in torchrun_killed and rank.exit_code == -signal.SIGTERM:
        told = told | {(rank.node_rank, rank.pid or 0)}
    if rank.asked_to_stop is None and (rank.node_rank, rank.pid) in told and -(rank.exit_code or 0) in _ORDERED_ENDS:
        return replace(rank, asked_to_stop=rank.ended or 0.0)
    return rank


def failure_of(rank: RankRecord) -> RankFailure | None:  # noqa: PLR0911 -- one way to end a case
    """None for a rank that succeeded, runs, is not known, or did as it was told."""
    if rank.from_log:
        return failure_in_log(rank)
    handled = in_flight(rank)
    stopped = rank.asked_to_stop is not None and not (rank.left_by_itself and rank.script_exit_code is not None)
    code = rank.own_exit_code
    if code is not None and code < 0 and not (stopped and -code in _ORDERED_ENDS):
        return _signalled(rank, handled)
    uncaught = uncaught_fact(rank)
    if uncaught is not None and code != 0:
        late = stopped and uncaught.t > (rank.asked_to_stop or 0)
        return None if late and plain_name(uncaught.type) in _OBEDIENCE else _and_left(from_fact(rank, uncaught, late))
    if handled is not None and (stopped or code != 0):
        return handled
    if (code or 0) <= 0:
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
    doubt = f"above its last words stands {printed.headline}{at}, which it had handled"
    return replace(_bare_exit(rank, words), confidence="likely", doubt=doubt)


def _and_left(failure: RankFailure) -> RankFailure:
    """The script caught it, and called sys.exit or os._exit in the handler: as Hydra and click do. Where no line of the
    user's raised it, the place is the line that called the library."""
    rank = failure.rank
    if not rank.script_exit_code:
        return failure
    left, where = _left_at(rank), failure.where
    if where is not None and where.is_library and left is not None and not left.is_library:
        cited = replace(failure.citation, where=str(left)) if failure.citation is not None else None
        return replace(failure, where=left, citation=cited, course=f"It was raised at {where}, which then ended the "
                       f"process with {_call(rank)}.")  # fmt: skip
    at = f" at {left}" if left else ""
    return replace(failure, course=f"While it handled this, it ended with {_call(rank)}{at}.")


def _left_at(rank: RankRecord) -> TracebackFrame | None:
    return TracebackFrame(*rank.script_end_where) if rank.script_end_where is not None else None


def _call(rank: RankRecord) -> str:
    name = {"SystemExit": "sys.exit"}.get(rank.script_end_how, rank.script_end_how)
    return f"{name}({rank.script_exit_code})"


def _signalled(rank: RankRecord, handled: RankFailure | None) -> RankFailure | None:
    if rank.exit_code == -signal.SIGABRT and rank.script_exit_code and uncaught_fact(rank) is None:
        return _bare_exit(rank)  # it crashed on its way out
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
    how = _call(rank) if rank.script_exit_code else f"exit code {rank.exit_code}"
    where = _left_at(rank)
    first = rank.stderr_first_line + rank.stderr_tail.rstrip().count("\n") if rank.stderr_first_line else None
    citation = Citation(rank.stderr_path, first, quote="\n".join(lines)) if lines else Citation(rank.exit_path)
    citation = replace(citation, where=str(where) if where else None)
    return RankFailure(
        rank, "exit", known.finding if known else "rank-exception",
        CauseClass.COMMUNICATION if communication else CauseClass.UNCAUGHT_ERROR, "likely" if known else "certain",
        rank.script_ended or rank.ended, message=how, where=where, known=known, citation=citation,
    )  # fmt: skip
