"""How each rank failed: one record a rank, from its facts, its last words and its exit code, in that order of trust."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from functools import lru_cache

from distdbg.evidence.crash import fatal_error, terminate
from distdbg.evidence.messages import KnownMessage, recognise
from distdbg.evidence.run import ExceptionFact, RankRecord, RunEvidence
from distdbg.evidence.traceback_text import Frame, ParsedException, last_chain, shortened
from distdbg.model import CauseClass, Citation, Confidence

#: Exceptions that programs raise and handle all day long: seen in flight they mean nothing.
_ORDINARY = {"StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty", "Full", "CancelledError",
             "BlockingIOError", "InterruptedError", "KeyboardInterrupt", "SystemExit", "ImportError",
             "ModuleNotFoundError", "SignalException"}  # fmt: skip
#: How a rank ends that was asked to: nothing of its own.
_OBEDIENCE = {"KeyboardInterrupt", "SystemExit", "SignalException"}
_COMMUNICATION_TYPES = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"}
_COMMUNICATION = re.compile(
    r"gloo/transport/|ProcessGroup(NCCL|Gloo)|NCCL (error|communicator)|nccl\w*Error|TCPStore|c10d store|"
    r"monitoredBarrier|connectFullMesh"
)
#: Said by any socket: about the ranks' own only below torch.distributed.
_SOCKET = re.compile(r"Connection (closed by|reset by|refused)|Broken pipe|[Tt]imed out|No route to host")
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}
_ORDERED_ENDS = {signal.SIGTERM, signal.SIGKILL, signal.SIGINT}
_CLOSING = re.compile(r"Sending process (\d{1,9}) closing signal SIG")
_OOM = {"cuda-oom", "host-oom"}
_IMPORT = {"SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError"}


@dataclass(frozen=True)
class RankFailure:
    """One rank's failure. `finding` is the id it will get, `t` (epoch seconds) its first symptom.

    `kind` says what there is to show: an exception, a signal, a bare exit code, or an abort after the script's end.
    """

    rank: RankRecord
    kind: str
    finding: str
    cause_class: CauseClass
    confidence: Confidence
    t: float | None
    type: str = ""
    message: str = ""
    #: a traceback or a stack, shortened for a reader; empty where there is none
    shown: str = ""
    where: Frame | None = None
    known: KnownMessage | None = None
    citation: Citation | None = None
    #: what limits the confidence, in words
    doubt: str = ""
    signal: int | None = None

    @property
    def headline(self) -> str:
        """`ValueError: the first line of the message`."""
        first = self.message.split("\n", 1)[0].strip()
        return f"{self.type}: {first}" if first and self.type else self.type or first


@lru_cache(maxsize=1)
def failures(evidence: RunEvidence) -> tuple[RankFailure, ...]:
    """Every rank that failed by itself, by rank. Ranks that merely obeyed a SIGTERM are not among them."""
    told = {pid for node in evidence.nodes for pid in _told_by_torchrun(node.torchrun_tail)}
    found = (failure_of(_as_told(rank, told)) for rank in evidence.ranks)
    return tuple(f for f in found if f is not None)


def _told_by_torchrun(said: str) -> set[int]:
    """Processes that torchrun itself ended, by its own words: on another node than the one that failed first."""
    return {int(pid) for pid in _CLOSING.findall(said)}


def _as_told(rank: RankRecord, told: set[int]) -> RankRecord:
    if rank.asked_to_stop is None and rank.pid in told and -(rank.exit_code or 0) in _ORDERED_ENDS:
        return replace(rank, asked_to_stop=rank.ended or 0.0)
    return rank


def failure_of(rank: RankRecord) -> RankFailure | None:
    """None for a rank that succeeded, runs, is not known, or did as it was told."""
    in_flight = _in_flight(rank)
    stopped = rank.asked_to_stop is not None
    code = rank.exit_code
    if code is not None and code < 0 and not (stopped and -code in _ORDERED_ENDS):
        by_signal = _by_signal(rank, in_flight)
        if not stopped or by_signal.kind == "exception":
            return by_signal
        return replace(by_signal, cause_class=CauseClass.VICTIM) if by_signal.kind == "signal" else None
    uncaught = _uncaught(rank)
    if uncaught is not None and code != 0:
        late = stopped and uncaught.t > (rank.asked_to_stop or 0)
        return None if late and _plain_name(uncaught.type) in _OBEDIENCE else _from_fact(rank, uncaught, late)
    if in_flight is not None and (stopped or code != 0):
        return in_flight
    if code is None or code <= 0:
        return None
    return _from_output(rank, stopped) or _from_error_file(rank) or (None if stopped else _bare_exit(rank))


# -- exceptions ---------------------------------------------------------------------------------------------------


def _uncaught(rank: RankRecord) -> ExceptionFact | None:
    own = [e for e in rank.exceptions if e.uncaught]
    main = [e for e in own if e.thread == "MainThread"]
    return next(iter(main or own), None)


def _in_flight(rank: RankRecord) -> RankFailure | None:
    """What the rank's main thread was still handling when a sibling died; other threads' say too little."""
    for fact in rank.exceptions:
        if fact.uncaught or fact.thread != "MainThread" or _plain_name(fact.type) in _ORDINARY:
            continue
        failure = _from_fact(rank, fact, late=False)
        if failure.cause_class is CauseClass.COMMUNICATION:
            return failure
        doubt = "it was still being handled when the job ended"
        return replace(failure, cause_class=CauseClass.EXCEPTION_IN_FLIGHT, confidence="likely", doubt=doubt)
    return None


def _from_fact(rank: RankRecord, fact: ExceptionFact, late: bool) -> RankFailure:
    chain = last_chain(fact.traceback)
    where = chain[-1].where if chain else None
    if where is None and fact.where is not None:
        where = Frame(*fact.where)
    last = ParsedException(_short_type(fact.type), fact.message, (where,) if where else (), fact.traceback, 0)
    return _exception(rank, (*chain[:-1], last), where, fact.t, citation=fact.citation, late=late)


def _from_output(rank: RankRecord, late: bool) -> RankFailure | None:
    """The last traceback on standard error: ranks without a worker side, and those that died before it could speak."""
    chain = last_chain(rank.stderr_tail)
    if not chain:
        return None
    citation = Citation(rank.stderr_path, _line(rank, chain[-1].line))
    return _exception(rank, chain, chain[-1].where, rank.ended, citation=citation, late=late)


def _from_error_file(rank: RankRecord) -> RankFailure | None:
    """torchelastic's error file, as @record writes it: {"message": {"message": …, "extraInfo": {…}}}."""
    inner = (rank.error_file or {}).get("message")
    if not isinstance(inner, dict):
        return None
    extra = inner.get("extraInfo")
    text = str(extra.get("py_callstack", "")) if isinstance(extra, dict) else ""
    chain = last_chain(text)
    if not chain:
        name, _, message = str(inner.get("message", "")).partition(": ")
        chain = (ParsedException(name[:200], message, (), "", 0),)
    path = rank.exit_path.replace("exit.json", "error.json")
    return _exception(rank, chain, chain[-1].where, rank.ended, citation=Citation(path), late=False)


def _exception(
    rank: RankRecord,
    chain: tuple[ParsedException, ...],
    where: Frame | None,
    t: float | None,
    *,
    citation: Citation | None,
    late: bool,
) -> RankFailure:
    last = chain[-1]
    subject = _subject(last)
    known = recognise(subject)
    communication = _is_communication(last, known)
    confidence: Confidence = "certain"
    doubt = ""
    if communication:
        confidence = "likely"
        first = next((e for e in chain[:-1] if not _is_communication(e, recognise(_subject(e)))), None)
        if first is not None and first.type not in _ORDINARY and chain[1].link == "context":
            # Cleaning up after its own error, it met peers that had gone: the first error is the cause.
            last, known, where, communication = first, recognise(_subject(first)), first.where, False
            doubt = f"a communication error followed while it was being handled ({_plain_name(chain[-1].type)})"
    elif chain[0] is not last and _is_communication(chain[0], recognise(_subject(chain[0]))):
        communication, confidence = True, "likely"
        doubt = f"it was raised while handling {chain[0].type}: {chain[0].first_line}"
    finding = known.finding if known else _finding_without_entry(rank, last, communication)
    cause_class = CauseClass.UNCAUGHT_ERROR
    if late:
        cause_class = CauseClass.VICTIM
    elif communication:
        cause_class = CauseClass.COMMUNICATION
    elif finding in _OOM:
        cause_class = CauseClass.KILLED_OR_OOM
    shown = shortened("\n\n".join(e.text for e in chain[-2:] if e.text))
    if citation is not None:
        citation = replace(citation, where=str(where) if where else citation.where, quote=shown)
    return RankFailure(
        rank=rank, kind="exception", finding=finding, cause_class=cause_class, confidence=confidence, t=t,
        type=_short_type(last.type), message=last.message, shown=shown, where=where, known=known, citation=citation,
        doubt=doubt,
    )  # fmt: skip


def _finding_without_entry(rank: RankRecord, error: ParsedException, communication: bool) -> str:
    if communication and "NCCL" in error.message:
        return "nccl-error"
    if _plain_name(error.type) in _IMPORT and not rank.step:
        return "launch-failed"
    return "rank-exception"


def _is_communication(error: ParsedException, known: KnownMessage | None) -> bool:
    if known is not None:
        return known.communication
    if _plain_name(error.type) in _COMMUNICATION_TYPES:
        return True
    said = error.message[:4096]
    if _COMMUNICATION.search(said):
        return True
    return bool(_SOCKET.search(said)) and any("/torch/distributed/" in frame.file for frame in error.frames)


def _subject(error: ParsedException) -> str:
    return f"{_short_type(error.type)}: {error.message}"


def _plain_name(name: str) -> str:
    return name.rpartition(".")[2]


def _short_type(name: str) -> str:
    return name.removeprefix("builtins.")


# -- signals and bare exit codes ----------------------------------------------------------------------------------


def _by_signal(rank: RankRecord, in_flight: RankFailure | None) -> RankFailure:
    number = -(rank.exit_code or 0)
    uncaught = _uncaught(rank)
    if rank.script_finished and uncaught is None and number in _CRASHES:
        return _abort_at_exit(rank, number)
    if uncaught is not None and number in _CRASHES:  # it raised, and the interpreter's end then crashed
        return _from_fact(rank, uncaught, late=False)
    if in_flight is not None:
        return in_flight
    if number in _CRASHES:
        return _thrown_by_native_code(rank, number) or _crash(rank, number)
    citation = Citation(rank.exit_path, None, quote=f'"exit_code": {rank.exit_code}')
    return RankFailure(
        rank, "signal", "rank-killed", CauseClass.KILLED_OR_OOM, "certain", rank.ended, citation=citation, signal=number
    )


def _abort_at_exit(rank: RankRecord, number: int) -> RankFailure:
    said = terminate(rank.stderr_tail)
    line = _line(rank, said[2]) if said else None
    words = " ".join(filter(None, said[:2])) if said else ""
    citation = Citation(rank.stderr_path, line, quote=f"terminate called {words}".strip() if said else "")
    return RankFailure(
        rank, "abort-at-exit", "abort-at-exit", CauseClass.OBSERVATION, "certain" if said else "likely",
        rank.script_ended or rank.ended, message=words, citation=citation, signal=number,
    )  # fmt: skip


def _thrown_by_native_code(rank: RankRecord, number: int) -> RankFailure | None:
    """An exception of C++ that nobody caught; or a message of torch's own threads before they abort the process."""
    said = terminate(rank.stderr_tail)
    if said is not None and said[0]:
        error = ParsedException(said[0], said[1], (), f"terminate called: {said[0]}\n  {said[1]}", said[2])
        at = said[2]
    else:
        last_lines = rank.stderr_tail.split("\n")[-60:]
        known = recognise("\n".join(last_lines))
        if known is None:
            return None
        at = rank.stderr_tail.count("\n") + 1 - len(last_lines)
        at += next((i for i, line in enumerate(last_lines) if known.match.search(line)), 0)
        line = rank.stderr_tail.split("\n")[at]
        error = ParsedException("", line.strip(), (), line, at)
    where = crash.where if (crash := fatal_error(rank.stderr_tail)) else None
    citation = Citation(rank.stderr_path, _line(rank, at), quote=error.text)
    failure = _exception(rank, (error,), where, rank.ended, citation=citation, late=False)
    if failure.known is None and failure.cause_class != CauseClass.COMMUNICATION:
        failure = replace(failure, finding="rank-killed", kind="signal")
    return replace(failure, signal=number)


def _crash(rank: RankRecord, number: int) -> RankFailure:
    crash = fatal_error(rank.stderr_tail)
    if crash is None:
        citation = Citation(rank.exit_path, None, quote=f'"exit_code": {rank.exit_code}')
        where = None
    else:
        where = crash.where
        line = _line(rank, crash.line)
        citation = Citation(rank.stderr_path, line, where=str(where) if where else None, quote=shortened(crash.text))
    return RankFailure(
        rank, "signal", "rank-killed", CauseClass.UNCAUGHT_ERROR, "certain", rank.ended,
        message=_terminate_words(rank), shown=citation.quote if crash else "", where=where, citation=citation,
        signal=number,
    )  # fmt: skip


def _terminate_words(rank: RankRecord) -> str:
    """`terminate called …` as the rank printed it, or the empty string."""
    said = terminate(rank.stderr_tail)
    return f"terminate called {' '.join(filter(None, said[:2]))}" if said else ""


def _bare_exit(rank: RankRecord) -> RankFailure:
    """A non-zero exit code and no traceback anywhere: sys.exit(7), os._exit(1), a program that is not Python."""
    lines = [line for line in rank.stderr_tail.rstrip().split("\n")[-12:] if line.strip()]
    known = recognise("\n".join(lines)) if lines else None
    communication = known is not None and known.communication
    how = f"sys.exit({rank.exit_code})" if rank.script_end_how == "SystemExit" else f"exit code {rank.exit_code}"
    first = rank.stderr_first_line + rank.stderr_tail.rstrip().count("\n") if rank.stderr_first_line else None
    citation = Citation(rank.stderr_path, first, quote="\n".join(lines)) if lines else Citation(rank.exit_path)
    return RankFailure(
        rank, "exit", known.finding if known else "rank-exception",
        CauseClass.COMMUNICATION if communication else CauseClass.UNCAUGHT_ERROR, "likely" if known else "certain",
        rank.script_ended or rank.ended, message=how, known=known, citation=citation,
    )  # fmt: skip


def _line(rank: RankRecord, at: int) -> int | None:
    """1-based line of the file for a 0-based one of the tail; None where the file was too long to count."""
    return rank.stderr_first_line + at if rank.stderr_first_line else None
