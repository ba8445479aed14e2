"""Request memory snapshots or profiles of the ranks of a live run, through its control file and its agents' events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from distdbg.collect.files.bounded_read import read_end, read_whole
from distdbg.collect.runs.run_status import run_status
from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.evidence import jsonl
from distdbg.evidence.records import ranks_seen
from distdbg.launch.io.control import refuse_unwritable_run
from distdbg.model import fold_ranks
from distdbg.protocol.agent_events import AgentFinished, MemorySnapshot, Profile
from distdbg.protocol.requests import TakeProfile, TakeSnapshot
from distdbg.rundir import Attempt, RunDir

_LOOK_EVERY_S = 0.1
_MOST_EVENTS = 16 << 20
_MOST_NEWS = 1 << 20
#: An agent writes every ten seconds; its node's clock and a shared file system may be late by some.
_SILENT_S = 180.0
#: What an asked agent takes to look at its control file, and its ranks to hear of it.
_HEARD_WITHIN_S = 2.0
#: Ranks may have become so much faster since.
_FASTER = 1.25
_MOST_METRICS = 1 << 20


@dataclass(frozen=True)
class Taken:
    """Of one rank: the files, or why there are none; `missing` is what a reader would look for in vain."""

    rank: int
    files: tuple[Path, ...] = ()
    because: str = ""
    missing: str = ""


def take_snapshots(
    run: RunDir, wanted: frozenset[int] | None, within: float, say: Callable[[str], None]
) -> list[Taken]:
    """Of the ranks in `wanted`, or of all that live. Raises what `_ask_ranks` raises."""
    silent = f"it did not answer within {within:g} s: it may stand in C code that holds the interpreter's lock"
    return _ask_ranks(run, TakeSnapshot, wanted, within, say, silent)


def take_profiles(
    run: RunDir, wanted: frozenset[int] | None, steps: int, within: float, say: Callable[[str], None]
) -> list[Taken]:
    """`steps` steps of the ranks in `wanted`, or of all that live. Raises what `_ask_ranks` raises."""
    attempts = run.attempts()
    first = _next_step(attempts[-1], time.time()) if attempts else 1
    silent = (f"its {steps} steps did not end within {within:g} s; `distdbg hang-dump` shows where it stands, and what "
              "comes later is found by `distdbg profile` again")  # fmt: skip
    return _ask_ranks(run, partial(TakeProfile, first=first, steps=steps), wanted, within, say, silent)


def _next_step(attempt: Attempt, now: float) -> int:
    """The step that every rank has still before it when it is asked: by what each last said of its steps and rate.

    A rank that is past it begins with its next one.
    """
    first = 1
    for files in attempt.nodes():
        records, _ = jsonl.objects(read_end(files.metrics, _MOST_METRICS).text)
        for _, record in records[-1:]:
            age = max(now - (jsonl.number(record, "t") or now), 0) + _HEARD_WITHIN_S
            for rank in jsonl.dicts(record.get("ranks")):
                step, rate = jsonl.integer(rank, "step") or 0, jsonl.number(rank, "rate") or 0
                first = max(first, step + 1 + int(rate * age * _FASTER))
    return first


def _ask_ranks(  # noqa: PLR0917 -- two callers
    run: RunDir,
    make: Callable[..., TakeSnapshot | TakeProfile],
    wanted: frozenset[int] | None,
    within: float,
    say: Callable[[str], None],
    silent: str,
) -> list[Taken]:
    """Ask, wait for every rank that lives, and give what came, by rank; `silent` is why nothing came of one.

    Raises NothingToAnalyse where nothing runs, UsageError for a rank that there is not, Refused where the run's
    directory cannot be written.
    """
    living = living_ranks(run)
    if not living:
        raise NothingToAnalyse(
            f"{run.id} does not run: no rank of it lives, as far as its agents have told within {_SILENT_S:.0f} s",
            "`distdbg runs` lists the runs that do.",
        )
    strange = sorted((wanted or frozenset()) - living)
    if strange:
        raise UsageError(
            f"{run.id} has no living rank {fold_ranks(strange)}", f"Living ranks: {fold_ranks(sorted(living))}."
        )
    asked = wanted or living
    token = os.urandom(4).hex()
    request = make(id=token, ranks=sorted(wanted) if wanted else None)
    with refuse_unwritable_run():
        run.ask(request.record())
    attempt = run.attempts()[-1]
    until = time.monotonic() + within
    found: dict[int, Taken] = {}
    while len(found) < len(asked) and time.monotonic() < until:
        told = _told(attempt, Profile if isinstance(request, TakeProfile) else MemorySnapshot, token)
        found |= {taken.rank: taken for taken in told if taken.rank in asked}
        say(f"waiting for {len(asked) - len(found)} of {len(asked)} ranks")
        time.sleep(_LOOK_EVERY_S)
    return [found.get(rank) or Taken(rank, because=silent) for rank in sorted(asked)]


def living_ranks(run: RunDir) -> frozenset[int]:
    """Ranks that have started and not ended, as far as their agents have told, and lately: one that was killed, or
    whose node was lost, tells nothing of its end. None where the run is over, or nobody is left who launched it."""
    attempts = run.attempts()
    if not attempts or run_status(run).live is False:
        return frozenset()
    found: set[int] = set()
    for files in attempts[-1].nodes():
        events, _ = jsonl.objects(read_whole(files.events, _MOST_EVENTS)[0] or "")
        told = [event for _, event in events]
        told += [event for _, event in jsonl.objects(read_end(files.metrics, _MOST_NEWS).text)[0]]
        newest = max((jsonl.number(event, "t") or 0.0 for event in told), default=0.0)
        if time.time() - newest < _SILENT_S and not AgentFinished.is_in(events):
            found |= {rank for rank, known in ranks_seen(events).items() if known.get("pid") and "ended" not in known}
    return frozenset(found)


def _told(attempt: Attempt, kind: type[MemorySnapshot | Profile], token: str) -> list[Taken]:
    found = []
    for files in attempt.nodes():
        events, _ = jsonl.objects(read_end(files.events, _MOST_NEWS).text)
        found += [_taken(attempt, event) for _, event in kind.among(events) if event.id == token]
    return found


def _taken(attempt: Attempt, event: MemorySnapshot | Profile) -> Taken:
    files = attempt.rank(event.rank or 0)
    folder = files.profile if isinstance(event, Profile) else files.memory
    return Taken(event.rank or 0, tuple(folder / str(name) for name in event.files or ()), event.because, event.missing)
