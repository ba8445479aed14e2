"""What every rule of a hang says in the same way: who waits, since when, where a rank is, and what is cited."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.failures.handling import handling
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.hang import Culprit, Hang
from distdbg.evidence.dump import Dump, Look, RankDump
from distdbg.evidence.frames import Origin, module_path
from distdbg.evidence.run import ExceptionFact, RunEvidence
from distdbg.evidence.stacks.threads import Frame, Thread
from distdbg.model import Citation
from distdbg.wording import name_ranks, plural

_MOST_CITED = 3
_MOST_FRAMES = 12


def waited(evidence: RunEvidence, hang: Hang, waits: Iterable[Wait]) -> str:
    """`Ranks 0-2 wait in all_reduce … at train.py:30, since 12:03:11 (14 s before the dump).`"""
    words = []
    for wait in waits:
        lines = sorted({f.short for r in wait.waiting if (f := hang.frame_of(r))})
        place = f" at {' and '.join(lines[:2])}" if lines else ""
        subject = f"{who(evidence, wait.waiting)} {plural('waits', wait.waiting)}"
        what = f"{wait.what}{hang.place_of((wait,))}"
        words.append(f"{subject[:1].upper()}{subject[1:]} in {what}{place}{_age(evidence, hang, wait.since)}.")
    return " ".join(words[:4]) + (f" And {len(words) - 4} more waits." if len(words) > 4 else "")


def _age(evidence: RunEvidence, hang: Hang, when: float | None) -> str:
    if when is None or not hang.dump.t or when > hang.dump.t:
        return ""
    clock = time_of(when)
    if not hang.dump.path or evidence.clock_was_set:  # files that others collected do not say when
        return f", since {clock}"
    return f", since {clock} ({hang.dump.t - when:.0f} s before the dump)"


def time_of(when: float) -> str:
    seconds = int(when) % 86400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d} UTC"


def side_of(culprit: Culprit) -> Literal["host", "device"] | None:
    """None where hosts wait for hosts, as with gloo."""
    if culprit.standing.doing is Doing.DEVICE:
        return "device"
    return "host" if any(wait.on_device for wait in culprit.waits) else None


def since(hang: Hang, waits: Iterable[Wait]) -> float | None:
    return min((wait.since for wait in waits if wait.since is not None), default=hang.dump.t or None)


def step(hang: Hang, ranks: Iterable[int]) -> int | None:
    for rank in ranks:
        had = hang.dump.ranks.get(rank)
        if had is not None and had.last.page and had.last.page.step:
            return had.last.page.step
    return None


def citations(hang: Hang, ranks: Iterable[int], waiting: Iterable[int]) -> tuple[Citation, ...]:
    """The culprits' stacks, the first with its frames, then some of those who wait."""
    ranks = tuple(ranks)
    found = [_citation(hang, rank, quote=place == 0) for place, rank in enumerate(ranks[:_MOST_CITED])]
    others = [rank for rank in dict.fromkeys(waiting) if rank not in ranks]
    found += [_citation(hang, rank, quote=False) for rank in others[:1]]
    return tuple(c for c in found if c is not None)


def _citation(hang: Hang, rank: int, *, quote: bool) -> Citation | None:
    had = hang.dump.ranks.get(rank)
    look = next((look for look in had.looks if look.threads_path), None) if had is not None else None
    if had is None:
        return None
    if look is None:
        path = next((seen.recorder_path for seen in reversed(had.looks) if seen.recorder_path), "")
        return Citation(path, None, f"rank {rank}, flight recorder") if path else None
    standing, operation = hang.standings[rank], hang.of_threads.get(rank)
    if operation is not None:
        standing = replace(standing, thread=operation.thread, frames=operation.frames)
    thread = _thread_of(standing, had, look)
    frames = standing.worker or (thread.frames if thread is not None else ())
    name = standing.thread or (thread.label if thread is not None else "main thread")
    name = "loader worker" if standing.worker else name
    where = f"rank {rank}, {name}, innermost first"
    return Citation(look.threads_path, None, where, quote_frames(hang.dump, frames) if quote else "")


def quote_frames(dump: Dump, frames: Iterable[Frame]) -> str:
    """The first of these frames, each on a line, with its source if that was kept."""
    shown = [f for f in frames if f.origin is not Origin.OURS][:_MOST_FRAMES]
    return "\n".join(f"{f.short if f.users else _below_its_package(f)}{_source(dump, f)}" for f in shown)


def _below_its_package(frame: Frame) -> str:
    """`torch/distributed/distributed_c10d.py:6371 in barrier`, without the folder of the environment."""
    return str(replace(frame, file=module_path(frame.file)))


def _thread_of(standing: Standing, had: RankDump, look: Look) -> Thread | None:
    """The one that stands there: mostly the main one."""
    others = (
        t for t in look.threads if standing.thread and t.pid == had.pid and t.user_frames[:1] == standing.frames[:1]
    )
    return next(others, had.judged(look))


def _source(dump: Dump, frame: Frame) -> str:
    text = dump.line(frame.file, frame.line) if frame.users else ""
    return f"    {text}" if text else ""


def sides_text(sides: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """`ranks 0-2 in all_reduce …, rank 3 in barrier`."""
    return ", ".join(f"{name_ranks(r)} in {operation}" for operation, r in sides)


# -- what a rank that stands in an `except` or a `finally` raised: it comes before where it stands --------------------

_MOST_TOLD = 3
REMEDY_OF_WHAT_RAISED = (
    "Mend what raised. A rank that fails alone should end: torchrun then ends the others. No collective belongs into "
    "an `except` or a `finally`, nor a wait for the other ranks."
)


def raised(evidence: RunEvidence, ranks: Iterable[int]) -> str:
    """`ValueError: the shard is torn (train.py:14)` of the first of `ranks`; empty where none handles anything."""
    facts = handling(evidence, ranks)
    return _words(facts[min(facts)]) if facts else ""


def handled(evidence: RunEvidence, ranks: Iterable[int]) -> str:
    """`Rank 2 is still handling ValueError: … (train.py:14).` for the first few; empty where none handles anything."""
    facts = sorted(handling(evidence, ranks).items())
    said = [f"Rank {rank} is still handling {_words(fact)}." for rank, fact in facts[:_MOST_TOLD]]
    return " ".join([*said, f"So are {len(facts) - _MOST_TOLD} more."] if len(facts) > _MOST_TOLD else said)


def _words(fact: ExceptionFact) -> str:
    line = next(iter(fact.message.splitlines()), "")
    text = f"{fact.type}: {line}" if line else fact.type
    where = f" ({fact.where[0].rpartition('/')[2]}:{fact.where[1]})" if fact.where else ""
    return f"{text}{where}"
