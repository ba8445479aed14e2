"""Report what became of the profiles that a launch requested, from the events of the agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from distdbg.evidence.jsonl import text
from distdbg.evidence.run import NodeRecord, RankRecord
from distdbg.model import Unknown, unfold_ranks
from distdbg.protocol.agent_events import Profile
from distdbg.wording import name_ranks

_LOST = "its file did not come into the run directory: was the disk full?"
_SILENT = "it ended before its profile was written"


def missing_profiles(
    job: Mapping[str, Any], nodes: Iterable[NodeRecord], ranks: Iterable[RankRecord], there: Callable[[int], set[str]]
) -> list[Unknown]:
    """The requested ranks without a complete profile, grouped by the reason.

    `there` gives the names of a rank's profiles that are in the run directory.
    """
    steps, wanted = _wanted(job)
    if not steps:
        return []
    by_rank = {event.rank: event for node in nodes for _, event in Profile.among(node.events) if event.id is None}
    reasons: dict[str, list[int]] = {}
    for rank in ranks:
        if wanted and rank.rank not in wanted:
            continue
        event = by_rank.get(rank.rank)
        if event is None and rank.ended is None:
            continue
        why = _SILENT if event is None else event.because or event.missing
        if event is not None and not set(map(str, event.files or ())) <= there(rank.rank):
            why = _LOST
        if why:
            reasons.setdefault(why, []).append(rank.rank)
    return [Unknown(f"profile of steps {steps}, {name_ranks(which)}", why) for why, which in reasons.items()]


def _wanted(job: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """The steps as the launch got them, and the ranks; no ranks mean all."""
    environment = job.get("environment")
    variables = environment if isinstance(environment, list) else []
    values = {text(v, "name"): text(v, "value") for v in variables if isinstance(v, dict)}
    try:
        return values.get("DISTDBG_PROFILE", ""), unfold_ranks(values.get("DISTDBG_PROFILE_RANKS", ""))
    except ValueError:
        return "", ()
