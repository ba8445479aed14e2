"""Profiles of a run that is under way: the same steps of all its ranks, as near as can be told from outside."""

from __future__ import annotations

import time
from collections.abc import Callable

from distdbg.collect.files.bounded_read import read_end
from distdbg.evidence import jsonl
from distdbg.launch.watch.asked_files import Taken, ask_ranks
from distdbg.rundir import Attempt, RunDir

#: What an asked agent takes to look at its control file, and its ranks to hear of it.
_HEARD_WITHIN_S = 2.0
#: Ranks may have become so much faster since.
_FASTER = 1.25
_MOST_METRICS = 1 << 20


def take_profiles(
    run: RunDir, wanted: frozenset[int] | None, steps: int, within: float, say: Callable[[str], None]
) -> list[Taken]:
    """`steps` steps of the ranks in `wanted`, or of all that live. Raises what `ask_ranks` raises."""
    attempts = run.attempts()
    first = _next_step(attempts[-1], time.time()) if attempts else 1
    silent = (f"its {steps} steps did not end within {within:g} s; `distdbg hang-dump` shows where it stands, and what "
              "comes later is found by `distdbg profile` again")  # fmt: skip
    return ask_ranks(run, {"request": "profile", "first": first, "steps": steps}, wanted, within, say, silent)


def _next_step(attempt: Attempt, now: float) -> int:
    """The step that every rank has still before it when it is asked: by what each last said of its steps and rate.

    A rank that is past it begins with its next one.
    """
    first = 1
    for files in attempt.nodes():
        records, _ = jsonl.objects(read_end(files.metrics, _MOST_METRICS).text)
        for _, record in records[-1:]:
            age = max(now - (jsonl.number(record, "t") or now), 0) + _HEARD_WITHIN_S
            for rank in (r for r in record.get("ranks") or () if isinstance(r, dict)):
                step, rate = jsonl.integer(rank, "step") or 0, jsonl.number(rank, "rate") or 0
                first = max(first, step + 1 + int(rate * age * _FASTER))
    return first
