"""Failures that are Python exceptions: from the worker side's facts, standard error or torchelastic's error file."""

from __future__ import annotations

import re
from dataclasses import replace

from distdbg.diagnosis.failures.handling import SIGNALS, within_python
from distdbg.diagnosis.failures.record import RankFailure, line_of_file
from distdbg.evidence.frames import Activity, activity_of
from distdbg.evidence.logs.messages import KnownMessage, recognise
from distdbg.evidence.run import ExceptionFact, RankRecord
from distdbg.evidence.stacks.tracebacks import (
    ParsedException,
    TracebackFrame,
    chain_text,
    last_chain,
    original,
    shortened,
)
from distdbg.model import CauseClass, Citation, Confidence

#: Exceptions that programs raise and handle all day long: seen in flight they mean nothing.
_ORDINARY = SIGNALS | {
    "Full", "CancelledError", "BlockingIOError", "InterruptedError", "KeyboardInterrupt", "SystemExit", "ImportError",
    "ModuleNotFoundError", "SignalException",
}  # fmt: skip
_COMMUNICATION_TYPES = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"}
_COMMUNICATION = re.compile(
    r"gloo/transport/|ProcessGroup(NCCL|Gloo)|NCCL (error|communicator)|nccl\w{0,100}Error|TCPStore|c10d store|"
    r"monitoredBarrier|connectFullMesh"
)
#: Said by any socket: about the ranks' own only below torch.distributed.
_SOCKET = re.compile(r"Connection (closed by|reset by|refused)|Broken pipe|[Tt]imed out|No route to host")
_OOM = {"cuda-oom", "host-oom"}
#: The doubt of an error that a rank's main thread was handling; scripts poll, retry and clean up so.
HANDLED = "it was still being handled when the job ended"
#: Lines below a traceback that are no words of the script's: the rest of the message, and warnings of an end.
_NO_WORDS = re.compile(
    r"\s|$|\[rank\d+\]:\[|[WI]\d{4} \d\d:|.*Warning: |Exception ignored|"
    r"CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE_CUDA_DSA|Device-side assertion tracking"
)
#: What Python raises where it is connected to a child that has ended.
_CHILD_IS_GONE = {"ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError", "FileNotFoundError"}
#: Unpickling in these frames reads what another process sent: a rank, or the parent of a child process.
_RECEIVES_PICKLES = {Activity.PICKLING, Activity.CHILD}
_DAMAGED_FILE = "checkpoint-not-atomic"
#: As torch reports a worker's death where nothing else came first.
_WORKER_DIED = "RuntimeError: DataLoader worker (pid(s) 0) exited unexpectedly"
_IMPORT = {"SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError"}


def uncaught_fact(rank: RankRecord) -> ExceptionFact | None:
    own = [e for e in rank.exceptions if e.uncaught]
    main = [e for e in own if e.thread == "MainThread"]
    return next(iter(main or own), None)


def in_flight(rank: RankRecord) -> RankFailure | None:
    """What the rank's main thread was still handling when a sibling died; other threads' say too little."""
    for fact in rank.exceptions:
        if fact.uncaught or fact.thread != "MainThread" or plain_name(fact.type) in _ORDINARY or within_python(fact):
            continue
        failure = from_fact(rank, fact, late=False)
        if failure.cause_class is CauseClass.COMMUNICATION:
            return failure
        told = replace(failure, confidence="likely", doubt=HANDLED, otherwise=None)
        victim = replace(told, finding="rank-exception", cause_class=CauseClass.VICTIM)
        return replace(told, cause_class=CauseClass.EXCEPTION_IN_FLIGHT, otherwise=victim)
    return None


def from_fact(rank: RankRecord, fact: ExceptionFact, late: bool) -> RankFailure:
    chain = last_chain(fact.traceback)
    where = chain[-1].where if chain else None
    if where is None and fact.where is not None:
        where = TracebackFrame(*fact.where)
    if not chain:
        chain = (ParsedException("", "", (where,) if where else (), fact.traceback, 0),)
    last = replace(chain[-1], type=_short_type(fact.type), message=fact.message)
    failure = exception_failure(rank, (*chain[:-1], last), where, fact.t, citation=fact.citation, late=late)
    return failure if fact.type or not rank.from_log else replace(failure, kind="line")


def from_output(rank: RankRecord, late: bool) -> RankFailure | None:
    """The last traceback on standard error: ranks without a worker side, and those that died before it could speak."""
    chain = last_chain(rank.stderr_tail)
    if not chain:
        return None
    citation = Citation(rank.stderr_path, line_of_file(rank, chain[-2:][0].line))
    return exception_failure(rank, chain, chain[-1].where, rank.ended, citation=citation, late=late)


def words_after(rank: RankRecord) -> list[str]:
    """What the rank has said on standard error below its last traceback."""
    chain = last_chain(rank.stderr_tail)
    below = iter(rank.stderr_tail.split("\n")[chain[-1].line + 1 :] if chain else ())
    next((line for line in below if line.strip() and not line.startswith(" ")), None)  # the error itself
    return [line for line in below if not _NO_WORDS.match(line)]


def from_error_file(rank: RankRecord) -> RankFailure | None:
    """torchelastic's error file, as @record writes it: {"message": {"message": …, "extraInfo": {…}}}."""
    inner = (rank.error_file or {}).get("message")
    if not isinstance(inner, dict):
        return None
    extra = inner.get("extraInfo")
    text = str(extra.get("py_callstack", "")) if isinstance(extra, dict) else ""
    chain = last_chain(text)
    if not chain:
        name, _, message = str(inner.get("message", "")).partition(": ")
        chain = (ParsedException(name, message, (), "", 0),)
    path = rank.exit_path.replace("exit.json", "error.json")
    return exception_failure(rank, chain, chain[-1].where, rank.ended, citation=Citation(path), late=False)


def exception_failure(
    rank: RankRecord,
    chain: tuple[ParsedException, ...],
    where: TracebackFrame | None,
    t: float | None,
    *,
    citation: Citation | None,
    late: bool,
    noticed: bool = False,
) -> RankFailure:
    """`noticed`: another rank has a cause of its own, and a communication error at the chain's end came of that."""
    if inner := original(chain[-1]):
        own = inner[-1].where
        its = own if own is not None and not own.is_library else where
        failure = exception_failure(rank, inner, its, t, citation=citation, late=late)
        place = chain[-1].first_line.partition(" in ")[2].rstrip(".")
        return replace(failure, course=f"It was raised in {place}{f', for {where}' if where else ''}.")
    told, known, communication, doubt = _telling(chain, noticed)
    known = known or _lost_worker(told)
    otherwise = None
    if doubt and not communication and not late:
        otherwise = exception_failure(rank, chain, where, t, citation=citation, late=late, noticed=True)
    if told is not chain[-1]:
        where = told.where if told.where is not None and not told.where.is_library else where
    confidence: Confidence = "likely" if communication or doubt else "certain"
    finding = known.finding if known else _finding_without_entry(rank, told, communication)
    cause_class = CauseClass.UNCAUGHT_ERROR
    if late:
        cause_class = CauseClass.VICTIM
    elif communication:
        cause_class = CauseClass.COMMUNICATION
    elif finding in _OOM:
        cause_class = CauseClass.KILLED_OR_OOM
    if citation is not None:
        quote = shortened(chain_text(chain[-2:]))
        citation = replace(citation, where=str(where) if where else citation.where, quote=quote)
    return RankFailure(
        rank=rank, kind="exception", finding=finding, cause_class=cause_class, confidence=confidence, t=t,
        type=_short_type(told.type), message=told.message, where=where, known=known, citation=citation,
        doubt=doubt, otherwise=otherwise, frames=tuple(f for f in reversed(told.frames) if not f.is_library),
    )  # fmt: skip


def _telling(
    chain: tuple[ParsedException, ...], noticed: bool
) -> tuple[ParsedException, KnownMessage | None, bool, str]:
    """Of a chain the exception that tells most, its kind, whether it is a consequence, and what is not certain."""
    last, known = chain[-1], _recognise(chain[-1])
    if _is_communication(last, known):
        own = next((e for e in chain[:-1] if not _is_communication(e, _recognise(e))), None)
        if own is not None and own.type not in _ORDINARY and chain[1].link == "context" and not noticed:
            # Cleaning up after its own error, it met peers that had gone: the first error is the cause.
            doubt = f"a communication error followed while it was being handled ({plain_name(last.type)})"
            return own, _recognise(own), False, doubt
        return last, known, True, ""
    first = chain[0]
    if first is not last and _is_communication(first, _recognise(first)):
        return last, known, True, f"it was raised while handling {first.type}: {first.first_line}"
    for error, follower in zip(chain[-2::-1], chain[:0:-1], strict=True):
        if follower.link != "cause":
            break
        better = _recognise(error)
        if better is not None and (known is None or better.finding != "rank-exception"):
            last, known = error, better
    return last, known, False, ""


def _recognise(error: ParsedException) -> KnownMessage | None:
    """Return the known message of an exception. Bytes that another process sent are not a damaged file."""
    known = recognise(subject(error))
    if known is not None and known.finding == _DAMAGED_FILE and error.frames:
        innermost = error.frames[-1]
        if activity_of(innermost.file, innermost.function) in _RECEIVES_PICKLES:
            return None
    return known


def _lost_worker(error: ParsedException) -> KnownMessage | None:
    """A worker was killed while the loader fetched a batch from it: what the connection to it raises then."""
    activities = [activity_of(frame.file, frame.function) for frame in error.frames]
    if Activity.LOADER in activities and activities[-1] is Activity.CHILD and plain_name(error.type) in _CHILD_IS_GONE:
        return recognise(_WORKER_DIED)
    return None


def _finding_without_entry(rank: RankRecord, error: ParsedException, communication: bool) -> str:
    if communication and "NCCL" in error.message:
        return "nccl-error"
    if plain_name(error.type) in _IMPORT and not rank.step:
        return "launch-failed"
    return "rank-exception"


def _is_communication(error: ParsedException, known: KnownMessage | None) -> bool:
    if known is not None:
        return known.communication
    if plain_name(error.type) in _COMMUNICATION_TYPES:
        return True
    said = error.message[:4096]
    if _COMMUNICATION.search(said):
        return True
    return bool(_SOCKET.search(said)) and any(
        activity_of(frame.file, frame.function).of_torch_distributed for frame in error.frames
    )


def subject(error: ParsedException) -> str:
    return f"{_short_type(error.type)}: {error.message}" if error.type else error.message


def plain_name(name: str) -> str:
    return name.replace("::", ".").rpartition(".")[2]


def _short_type(name: str) -> str:
    return name.removeprefix("builtins.")
