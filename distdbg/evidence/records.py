"""Turn the agents' files into rank and node records. What is missing or of the wrong kind becomes an Unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from distdbg.evidence.exit_status import exit_status, implausible
from distdbg.evidence.host.gpus import GpuCourse, RankLook
from distdbg.evidence.jsonl import integer, number, ranks, text
from distdbg.evidence.jsonl import rank as rank_number
from distdbg.evidence.logs.nccl import read_nccl_log
from distdbg.evidence.logs.tail import Tail
from distdbg.evidence.memory.growth import NodeMemory, rank_series
from distdbg.evidence.own_failures import failures_in_facts
from distdbg.evidence.run import ExceptionFact, GuardFact, NodeRecord, RankRecord, Shrunk, StepTimes, WithoutGradient
from distdbg.evidence.training.gradients import gradient_series
from distdbg.model import MOST_RANKS, Citation, Unknown, fold_ranks
from distdbg.protocol.agent_events import AgentStarted, AttemptStarted, Cgroup, Kernel, TorchrunExited
from distdbg.protocol.facts import (
    GroupFact,
    Handled,
    Init,
    ModelAnswer,
    Raised,
    ScriptEnd,
    ShrunkFact,
    ValueRead,
    kind_of,
)
from distdbg.wording import name_ranks

Events = Sequence[tuple[int, Mapping[str, Any]]]

#: The question's name, as rank_watch.py asks beside a dump.
_AT_DUMP = "dump"
#: torchrun's line about a process that failed, at once (first form) or in its closing table
_FAILED_PROCESS = re.compile(r"\bexitcode\s*: (-?\d{1,3})\)?(?: local_rank: \d{1,9})? \(pid: (\d{1,9})\)")
#: The times of kernel messages are counted from the boot, and may be off by so many seconds.
_KERNEL_CLOCK_DRIFT_S = 1.0
#: Of a hostile or broken worker's facts, no more than this many exceptions are kept for a rank.
_MOST_EXCEPTIONS = 64
_MOST_GUARD_FACTS = 1000


@dataclass(frozen=True)
class RankTexts:
    """The content of one rank's folder, parsed no further than JSON; paths are as citations name them."""

    folder: str
    exit: Mapping[str, Any] | None = None
    facts: Events = ()
    error: Mapping[str, Any] | None = None
    stdout: Tail = field(default_factory=Tail)
    stderr: Tail = field(default_factory=Tail)
    nccl: str = ""
    memory: Events = ()
    #: lines from all over the run, where `memory` is its end alone
    memory_course: Events = ()
    gradients: Events = ()
    #: its beginning, and with it all of it where it is not long
    nccl_head: str = ""


def exit_codes_printed(torchrun_log: str) -> dict[int, int]:
    """The exit code of each pid that torchrun reported as failed."""
    return {int(pid): int(code) for code, pid in _FAILED_PROCESS.findall(torchrun_log)}


def rank_record(rank: int, node: NodeRecord | None, seen: Mapping[str, Any], texts: RankTexts) -> RankRecord:
    """`seen` is what the node's events say about this rank; exit.json, where it is whole, knows better."""
    fields = {**seen, **(texts.exit or {})}
    end = ScriptEnd.newest(texts.facts) or ScriptEnd(how="", exit=None)
    how = end.how
    ended = number(fields, "ended")
    exit_code = exit_status(fields)
    if exit_code is None and ended is not None and node is not None:
        exit_code = exit_codes_printed(node.torchrun_tail).get(integer(fields, "pid") or 0)
    because = implausible(fields) or text(fields, "unknown_because")
    return RankRecord(
        rank=rank,
        local_rank=integer(fields, "local_rank") or 0,
        node_rank=node.node_rank if node else integer(fields, "node_rank") or 0,
        host=node.host if node else text(fields, "host"),
        pid=integer(fields, "pid"),
        started=number(fields, "started"),
        ended=ended,
        exit_code=exit_code,
        exit_unknown_because=because if exit_code is None else "",
        asked_to_stop=number(fields, "asked_to_stop"),
        step=integer(fields, "step"),
        phase=text(fields, "phase") or None,
        script_finished=how == "returned" or (how in ("SystemExit", "os._exit") and end.exit == 0),
        script_ended=end.t,
        script_end_how=how,
        script_exit_code=exit_status(end.fields(), "exit"),
        script_end_where=_where(end.where),
        exceptions=tuple(exceptions(rank, texts.facts, f"{texts.folder}/facts.jsonl"))[:_MOST_EXCEPTIONS],
        handling=_handling(rank, texts.facts, f"{texts.folder}/facts.jsonl"),
        error_file=texts.error,
        stdout_tail=texts.stdout.text,
        stderr_tail=texts.stderr.text,
        stdout_path=f"{texts.folder}/stdout.log",
        stderr_path=f"{texts.folder}/stderr.log",
        stderr_first_line=texts.stderr.first_line,
        exit_path=f"{texts.folder}/exit.json",
        rss_bytes=integer(fields, "rss"),
        nccl_tail=texts.nccl,
        nccl_path=f"{texts.folder}/nccl.log",
        nccl=read_nccl_log(texts.nccl_head),
        phases=_phases(fields.get("phases")),
        step_times=_step_times(fields.get("step_times")),
        peak_rss_bytes=integer(fields, "peak_rss"),
        has_worker=bool(texts.facts),
        initialised=Init.is_in(texts.facts),
        failures=failures_in_facts(texts.facts),
        groups=dict(_groups(texts.facts)),
        without_gradient=_without_gradient(texts.facts),
        value_reads=frozenset((read.file, read.line) for _, read in ValueRead.among(texts.facts)),
        shrunk=_shrunk(texts.facts),
        guards=tuple(_guard_facts(rank, texts.facts, f"{texts.folder}/facts.jsonl"))[:_MOST_GUARD_FACTS],
        memory=rank_series(texts.memory, texts.folder, texts.facts, texts.memory_course),
        gradients=gradient_series(texts.facts, texts.gradients, texts.folder),
    )


def _shrunk(facts: Events) -> Shrunk | None:
    """The newest fact: a model's parts are reported as they are built."""
    fact = ShrunkFact.newest(facts)
    if fact is None:
        return None
    kept = (fact.kept or {}).items()
    has = "loaded all and ran" if fact.loaded else "has"
    words = [f"{path} {has} {n[0]} of {n[1]} layers" for path, n in kept if isinstance(n, list) and len(n) == 2]
    if fact.skipped:
        real = f", real in {fold_ranks(fact.real)}" if fact.real else ""
        words.append(f"no attention in layers {fold_ranks(fact.skipped)}{real}")
    return Shrunk("; ".join(words), not words)


def _without_gradient(facts: Events) -> WithoutGradient | None:
    """The newest answer."""
    for _, model in ModelAnswer.among(reversed(facts)):
        if model.without is not None and model.parameters is not None:
            return WithoutGradient(model.without, model.parameters, tuple(map(str, model.names or ())), model.reduces)
    return None


def _phases(value: object) -> dict[str, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {name: count for name, count in items if isinstance(name, str) and isinstance(count, int) and count > 0}


def _step_times(value: object) -> StepTimes | None:
    fields = value if isinstance(value, dict) else {}
    figures = [number(fields, name) for name in ("median", "low", "high")]
    windows = integer(fields, "windows")
    if not windows or any(figure is None or figure <= 0 for figure in figures):
        return None
    middle, low, high = (figure or 0.0 for figure in figures)
    return StepTimes(windows, middle, low, high)


def _groups(facts: Events) -> Iterable[tuple[str, tuple[int, ...]]]:
    for _, group in GroupFact.among(facts):
        match group.ranks:
            case {"first": int(first), "step": int(step), "count": int(count)} if _fits(first, step, count):
                yield group.name, _evenly(first, step, count)
            case list(members):
                yield group.name, ranks(members)


def _fits(first: int, step: int, count: int) -> bool:
    last = first + step * (count - 1)
    return 0 < count <= MOST_RANKS and step != 0 and min(first, last) >= 0 and max(first, last) < MOST_RANKS


@lru_cache(maxsize=4096)
def _evenly(first: int, step: int, count: int) -> tuple[int, ...]:
    """One object for all ranks that tell the same."""
    return tuple(range(first, first + step * count, step))


def _guard_facts(rank: int, facts: Events, path: str) -> Iterable[GuardFact]:
    for line, fact in facts:
        if fact.get("kind") == "guard" and (guard := text(fact, "guard")):
            where = _where(fact.get("where"))
            yield GuardFact(
                rank, guard, fact, number(fact, "t"), integer(fact, "step"), where, Citation(path, line, _place(where))
            )


def _place(where: tuple[str, int, str] | None) -> str | None:
    return f"{where[0]}:{where[1]} in {where[2]}" if where else None


def beyond_bounds(rank: int, facts: Events) -> Iterable[Unknown]:
    """Facts of a broken worker that are more than any report can show."""
    guards = sum(1 for _, fact in facts if fact.get("kind") == "guard") - _MOST_GUARD_FACTS
    raised = sum(1 for _, fact in facts if kind_of(fact) is Raised) - _MOST_EXCEPTIONS
    for what, count, most in (("guards", guards, _MOST_GUARD_FACTS), ("exceptions", raised, _MOST_EXCEPTIONS)):
        if count > 0:
            yield Unknown(f"{count:,} more {what} of rank {rank}", f"only the first {most:,} are used")


def exceptions(rank: int, facts: Events, path: str) -> Iterable[ExceptionFact]:
    """Uncaught ones, and those that were being handled when a sibling died."""
    for line, fact in facts:
        kind = kind_of(fact)
        if kind is Raised:
            yield _exception(rank, Raised.from_record(fact), number(fact, "t"), Citation(path, line))
        elif kind is Handled and fact.get("id") != _AT_DUMP:
            yield from _handled(rank, fact, Citation(path, line))


def _handling(rank: int, facts: Events, path: str) -> ExceptionFact | None:
    """The exception that the rank was handling, by the newest dump's answer: an `except` may have ended since an older
    one."""
    for line, fact in reversed(facts):
        if kind_of(fact) is Handled and fact.get("id") == _AT_DUMP:
            return next((e for e in _handled(rank, fact, Citation(path, line)) if e.thread == "MainThread"), None)
    return None


def _handled(rank: int, fact: Mapping[str, Any], citation: Citation) -> Iterable[ExceptionFact]:
    for thread in Handled.from_record(fact).threads:
        if isinstance(thread, dict):
            raised = Raised.from_record({**thread, "uncaught": False})
            yield _exception(rank, raised, number(thread, "t") or number(fact, "t"), citation)


def _exception(rank: int, raised: Raised, t: float | None, citation: Citation) -> ExceptionFact:
    return ExceptionFact(
        rank=rank,
        type=raised.type or "Exception",
        message=raised.message,
        traceback=raised.traceback,
        t=t or 0.0,
        uncaught=raised.uncaught,
        thread=raised.thread or "MainThread",
        where=_where(raised.where),
        citation=citation,
    )


def _where(value: object) -> tuple[str, int, str] | None:
    match value:
        case [str(file), int(line), str(function)]:
            return file, line, function
    return None


def node_record(
    node_rank: int,
    host: str,
    *,
    events: Events,
    events_path: str,
    torchrun: Tail,
    torchrun_path: str,
    agent_log: str = "",
    before: Events = (),
    memory: NodeMemory | None = None,
    courses: Mapping[int, tuple[RankLook, ...]] | None = None,
    gpus: tuple[GpuCourse, ...] = (),
    metrics_path: str = "",
) -> NodeRecord:
    """`before` are the same agent's events of earlier attempts: the control group's counters at the start, if the
    attempt has none of its own, as in runs of older versions."""
    exited = TorchrunExited.newest(events)
    kernel = Kernel.newest(events)
    started = AgentStarted.newest([*before, *events])
    begun = next((event.t for _, event in AttemptStarted.among(events)), None) if before else None
    return NodeRecord(
        node_rank=node_rank,
        host=(started.host if started else "") or host,
        events=tuple(events),
        events_path=events_path,
        torchrun_tail=torchrun.text,
        torchrun_path=torchrun_path,
        agent_log=agent_log,
        torchrun_first_line=torchrun.first_line,
        torchrun_exit_code=exit_status(exited.fields()) if exited else None,
        cgroup=_cgroup(events, before),
        kernel=tuple(_kernel_messages(kernel.messages if kernel else (), begun)),
        kernel_has_own_pids=kernel.own_pids if kernel else True,
        kernel_unknown_because=kernel.because if kernel else "the agent did not read them in time",
        memory=memory or NodeMemory(),
        courses=courses or {},
        gpus=gpus,
        metrics_path=metrics_path,
    )


def _cgroup(events: Events, earlier: Events) -> dict[str, Any]:
    none = Cgroup(when="", more={})
    before = next((c for _, c in Cgroup.among([*events, *earlier]) if c.when == "before"), none)
    after = next((c for _, c in Cgroup.among(reversed(events)) if c.when == "after"), none)
    return {
        "oom_kill": [before.oom_kill, after.oom_kill],
        "limit": after.limit or before.limit,
        "because": after.because or before.because,
    }


def _kernel_messages(messages: Iterable[object], since: float | None) -> Iterable[tuple[str, float | None]]:
    """Leave out those before `since`, which are of an earlier attempt: agents of older versions wrote them, too."""
    for item in messages:
        match item:
            case [str(message), *rest]:
                t = number({"t": rest[0]}, "t") if rest else None
                if t is None or since is None or t >= since - _KERNEL_CLOCK_DRIFT_S:
                    yield message, t
            case str(message):
                yield message, None


def ranks_seen(events: Events) -> dict[int, dict[str, Any]]:
    """What one agent's events say about each of its ranks: the fields of exit.json, as far as they were known."""
    seen: dict[int, dict[str, Any]] = {}
    for _, event in events:
        match event.get("event"):
            case "attempt-started" if isinstance(ranks := event.get("ranks"), dict):
                for name, local_rank in ranks.items():
                    if (rank := rank_number(name)) is not None:
                        seen.setdefault(rank, {})["local_rank"] = local_rank
            case "rank-started" if (rank := rank_number(event.get("rank"))) is not None:
                seen.setdefault(rank, {}).update(pid=event.get("pid"), started=event.get("t"))
            case "phases" if isinstance(by_rank := event.get("ranks"), dict):
                for name, phases in by_rank.items():
                    if (rank := rank_number(name)) is not None:
                        seen.setdefault(rank, {})["phases"] = phases
            case "rank-exited" if (rank := rank_number(event.get("rank"))) is not None:
                seen.setdefault(rank, {}).update({k: v for k, v in event.items() if k not in ("t", "event")})
                seen[rank].setdefault("ended", event.get("t"))
    return seen


def first_failures(seen: Mapping[int, Mapping[str, Any]], most: int) -> set[int]:
    """The ranks whose last words are worth most: all of them up to `most`, else the first that failed by themselves."""
    if len(seen) <= most:
        return set(seen)
    failed = [
        (number(fields, "ended") or 0.0, rank)
        for rank, fields in seen.items()
        if fields.get("exit_code") != 0 and not fields.get("asked_to_stop")
    ]
    return {rank for _, rank in sorted(failed)[:most]}


def unknown_exits(ranks: Iterable[RankRecord], *, is_over: bool | None) -> list[Unknown]:
    """Ranks whose exit code is not known, grouped by the reason. `is_over` is None if the attempt may still run."""
    reasons: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.exit_code is None:
            default = "no agent recorded its end"
            if rank.ended is None and not is_over:
                default = "it had not ended when this was written" if is_over is False else "no end is recorded so far"
            reasons.setdefault(rank.exit_unknown_because or default, []).append(rank.rank)
    return [Unknown(f"exit code of {name_ranks(which)}", because) for because, which in reasons.items()]
