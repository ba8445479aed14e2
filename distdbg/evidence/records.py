"""The agents' files become rank and node records. Whatever is missing or of the wrong kind becomes an Unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from distdbg.evidence.course import Look
from distdbg.evidence.exit_status import exit_status, implausible
from distdbg.evidence.gpu_course import GpuCourse
from distdbg.evidence.gradients import gradient_series
from distdbg.evidence.growth import NodeMemory, rank_series
from distdbg.evidence.jsonl import integer, number, ranks, text
from distdbg.evidence.jsonl import rank as rank_number
from distdbg.evidence.nccl_log import read_nccl_log
from distdbg.evidence.run import ExceptionFact, GuardFact, NodeRecord, RankRecord, Shrunk, StepTimes, WithoutGradient
from distdbg.evidence.tail import Tail
from distdbg.model import MOST_RANKS, Citation, Unknown, fold_ranks

Events = Sequence[tuple[int, Mapping[str, Any]]]

#: The question's name, as rank_watch.py asks beside a dump.
_AT_DUMP = "dump"
#: Of a hostile or broken worker's facts, no more than this many exceptions are kept for a rank.
_MOST_EXCEPTIONS = 64
_MOST_GUARD_FACTS = 1000


@dataclass(frozen=True)
class RankTexts:
    """What stands in one rank's folder, parsed no further than JSON; paths are as citations name them."""

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


def rank_record(rank: int, node: NodeRecord | None, seen: Mapping[str, Any], texts: RankTexts) -> RankRecord:
    """`seen` is what the node's events say about this rank; exit.json, where it is whole, knows better."""
    fields = {**seen, **(texts.exit or {})}
    end = next((fact for _, fact in reversed(texts.facts) if fact.get("op") == "script-end"), {})
    how = text(end, "how")
    ended = number(fields, "ended")
    exit_code = exit_status(fields)
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
        script_finished=how == "returned" or (how == "SystemExit" and not integer(end, "exit")),
        script_ended=number(end, "t"),
        script_end_how=how,
        script_exit_code=exit_status(end, "exit"),
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
        initialised=any(fact.get("kind") == "init" for _, fact in texts.facts),
        not_kept={text(f, "what"): text(f, "error") for _, f in texts.facts if f.get("kind") == "not-kept"},
        groups=dict(_groups(texts.facts)),
        without_gradient=_without_gradient(texts.facts),
        shrunk=_shrunk(texts.facts),
        guards=tuple(_guard_facts(rank, texts.facts, f"{texts.folder}/facts.jsonl"))[:_MOST_GUARD_FACTS],
        memory=rank_series(texts.memory, texts.folder, texts.facts, texts.memory_course),
        gradients=gradient_series(texts.facts, texts.gradients, texts.folder),
    )


def _shrunk(facts: Events) -> Shrunk | None:
    """The newest answer: a model's parts are told of as they are built."""
    told = next((fact for _, fact in reversed(facts) if fact.get("kind") == "shrunk"), None)
    if told is None:
        return None
    kept = told["kept"] if isinstance(told.get("kept"), dict) else {}
    has = "loaded all and ran" if told.get("loaded") is True else "has"
    words = [f"{path} {has} {n[0]} of {n[1]} layers" for path, n in kept.items() if isinstance(n, list) and len(n) == 2]
    if isinstance(skipped := told.get("skipped"), list) and skipped:
        real = told.get("real") if isinstance(told.get("real"), list) else []
        words.append(
            f"no attention in layers {fold_ranks(skipped)}" + (f", real in {fold_ranks(real)}" if real else "")
        )
    return Shrunk("; ".join(words), not words)


def _without_gradient(facts: Events) -> WithoutGradient | None:
    """The newest answer."""
    for _, fact in reversed(facts):
        count, parameters = integer(fact, "without"), integer(fact, "parameters")
        if fact.get("op") == "model" and count is not None and parameters is not None:
            names = fact.get("names")
            reduces = fact.get("reduces") if isinstance(fact.get("reduces"), bool) else None
            shown = tuple(map(str, names)) if isinstance(names, list) else ()
            return WithoutGradient(count, parameters, shown, reduces)
    return None


def _phases(value: object) -> dict[str, int]:
    items = value.items() if isinstance(value, dict) else ()
    return {name: count for name, count in items if isinstance(name, str) and isinstance(count, int) and count > 0}


def _step_times(value: object) -> StepTimes | None:
    told = value if isinstance(value, dict) else {}
    figures = [number(told, name) for name in ("median", "low", "high")]
    windows = integer(told, "windows")
    if not windows or any(figure is None or figure <= 0 for figure in figures):
        return None
    middle, low, high = (figure or 0.0 for figure in figures)
    return StepTimes(windows, middle, low, high)


def _groups(facts: Events) -> Iterable[tuple[str, tuple[int, ...]]]:
    for _, fact in facts:
        if fact.get("kind") == "group":
            match fact.get("ranks"):
                case {"first": int(first), "step": int(step), "count": int(count)} if _fits(first, step, count):
                    yield text(fact, "name"), _evenly(first, step, count)
                case list(told):
                    yield text(fact, "name"), ranks(told)


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
    raised = sum(1 for _, fact in facts if fact.get("op") == "exception") - _MOST_EXCEPTIONS
    for what, count, most in (("guards", guards, _MOST_GUARD_FACTS), ("exceptions", raised, _MOST_EXCEPTIONS)):
        if count > 0:
            yield Unknown(f"{count:,} more {what} of rank {rank}", f"only the first {most:,} are used")


def exceptions(rank: int, facts: Events, path: str) -> Iterable[ExceptionFact]:
    """Uncaught ones, and those that were being handled when a sibling died."""
    for line, fact in facts:
        if fact.get("op") == "exception":
            yield _exception(rank, fact, fact, Citation(path, line))
        elif fact.get("op") == "exceptions" and fact.get("id") != _AT_DUMP:
            yield from _handled(rank, fact, Citation(path, line))


def _handling(rank: int, facts: Events, path: str) -> ExceptionFact | None:
    """Of the newest dump's answer: an `except` may have been left since an older one."""
    for line, fact in reversed(facts):
        if fact.get("op") == "exceptions" and fact.get("id") == _AT_DUMP:
            return next((e for e in _handled(rank, fact, Citation(path, line)) if e.thread == "MainThread"), None)
    return None


def _handled(rank: int, fact: Mapping[str, Any], citation: Citation) -> Iterable[ExceptionFact]:
    threads = fact.get("threads")
    for thread in threads if isinstance(threads, list) else ():
        if isinstance(thread, dict):
            yield _exception(rank, {**thread, "uncaught": False}, fact, citation)


def _exception(rank: int, own: Mapping[str, Any], message: Mapping[str, Any], citation: Citation) -> ExceptionFact:
    return ExceptionFact(
        rank=rank,
        type=text(own, "type") or "Exception",
        message=text(own, "message"),
        traceback=text(own, "traceback"),
        t=number(own, "t") or number(message, "t") or 0.0,
        uncaught=own.get("uncaught") is True,
        thread=text(own, "thread") or "MainThread",
        where=_where(own.get("where")),
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
    before: Events = (),
    memory: NodeMemory | None = None,
    courses: Mapping[int, tuple[Look, ...]] | None = None,
    gpus: tuple[GpuCourse, ...] = (),
    metrics_path: str = "",
) -> NodeRecord:
    """`before` are the same agent's events of earlier attempts: the control group's counters at the start."""
    exited = _last(events, "torchrun-exited")
    kernel = _last(events, "kernel")
    return NodeRecord(
        node_rank=node_rank,
        host=text(_last([*before, *events], "agent-started"), "host") or host,
        events=tuple(events),
        events_path=events_path,
        torchrun_tail=torchrun.text,
        torchrun_path=torchrun_path,
        torchrun_first_line=torchrun.first_line,
        torchrun_exit_code=exit_status(exited),
        cgroup=_cgroup([*before, *events]),
        kernel=tuple(_kernel_messages(kernel.get("messages"))),
        kernel_unknown_because=text(kernel, "because") if kernel else "the agent did not come to read them",
        memory=memory or NodeMemory(),
        courses=courses or {},
        gpus=gpus,
        metrics_path=metrics_path,
    )


def _cgroup(events: Events) -> dict[str, Any]:
    counters = [event for _, event in events if event.get("event") == "cgroup"]
    before = next((c for c in counters if c.get("when") == "before"), {})
    after = next((c for c in reversed(counters) if c.get("when") == "after"), {})
    found: dict[str, Any] = {"oom_kill": [integer(before, "oom_kill"), integer(after, "oom_kill")]}
    found["limit"] = integer(after, "limit") or integer(before, "limit")
    found["because"] = text(after, "because") or text(before, "because")
    return found


def _kernel_messages(value: object) -> Iterable[tuple[str, float | None]]:
    for item in value if isinstance(value, list) else ():
        match item:
            case [str(message), int() | float() as t] if not isinstance(t, bool) and math.isfinite(t):
                yield message, float(t)
            case [str(message), *_]:
                yield message, None
            case str(message):
                yield message, None


def _last(events: Events, name: str) -> Mapping[str, Any]:
    return next((event for _, event in reversed(events) if event.get("event") == name), {})


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
            case "phases" if isinstance(told := event.get("ranks"), dict):
                for name, phases in told.items():
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


def unknown_exits(ranks: Iterable[RankRecord], *, finished: bool) -> list[Unknown]:
    """Ranks whose exit code nobody knows, folded by the reason."""
    reasons: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.exit_code is None:
            gone = rank.ended is not None or finished
            default = "no agent recorded its end" if gone else "it had not ended when this was written"
            reasons.setdefault(rank.exit_unknown_because or default, []).append(rank.rank)
    return [
        Unknown(f"exit code of rank{'s' if len(which) > 1 else ''} {fold_ranks(which)}", because)
        for because, which in reasons.items()
    ]


def not_kept(ranks: Iterable[RankRecord]) -> list[Unknown]:
    """What ranks had no room for in their nodes' memory, folded."""
    found: dict[tuple[str, str], list[int]] = {}
    for rank in ranks:
        for told in rank.not_kept.items():
            found.setdefault(told, []).append(rank.rank)
    return [
        Unknown(f"{what} of rank{'s' if len(which) > 1 else ''} {fold_ranks(which)}", f"its node had no room: {error}")
        for (what, error), which in found.items()
    ]


def lost(node: NodeRecord) -> list[Unknown]:
    """Bytes of logs that could not be written, and what an error of the agent's own cost."""
    found = []
    for _, event in node.events:
        if event.get("event") == "agent-error":
            what = f"something that the agent of node {node.node_rank} was about to look at"
            found.append(Unknown(what, f"of an error of distdbg's own: {text(event, 'error')}"))
        if event.get("event") == "log-lost":
            count = integer(event, "bytes")
            what = f"{text(event, 'stream') or 'log'} of rank {rank_number(event.get('rank'))}"
            how_much = f"{count} bytes" if count is not None else "the capture"
            found.append(Unknown(f"{how_much} of {what}", text(event, "because") or "not said"))
    return found
