"""What the ranks of a run that is under way write when they are asked: memory snapshots, profiles.

Asked for by the run's control file, told by its agents' events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_end, read_whole
from distdbg.collect.runs.run_status import run_status
from distdbg.errors import NothingToAnalyse, Refused, UsageError
from distdbg.evidence import jsonl
from distdbg.evidence.records import ranks_seen
from distdbg.model import fold_ranks
from distdbg.protocol.agent_events import AgentFinished, MemorySnapshot, Profile
from distdbg.rundir import Attempt, RunDir

_LOOK_EVERY_S = 0.1
_MOST_EVENTS = 16 << 20
_MOST_NEWS = 1 << 20
#: An agent writes every ten seconds; its node's clock and a shared file system may be late by some.
_SILENT_S = 180.0


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
    """Of the ranks in `wanted`, or of all that live. Raises what `ask_ranks` raises."""
    silent = f"it did not answer within {within:g} s: it may stand in C code that holds the interpreter's lock"
    return ask_ranks(run, {"request": "memory-snapshot"}, wanted, within, say, silent)


def ask_ranks(  # noqa: PLR0917 -- two callers, which name what is not plain
    run: RunDir, request: Mapping[str, Any], wanted: frozenset[int] | None, within: float, say: Callable[[str], None],
    silent: str,
) -> list[Taken]:  # fmt: skip
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
    try:
        token = run.ask({**request, "ranks": sorted(wanted) if wanted else None})
    except OSError as error:
        raise Refused(
            f"the run directory cannot be written: {error.strerror}: {error.filename}",
            "Ask as the user who launched it, or free some space.",
        ) from None
    attempt = run.attempts()[-1]
    until = time.monotonic() + within
    found: dict[int, Taken] = {}
    while len(found) < len(asked) and time.monotonic() < until:
        told = _told(attempt, Profile if request["request"] == "profile" else MemorySnapshot, token)
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
