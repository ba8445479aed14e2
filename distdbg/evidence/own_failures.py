"""List what the report does not know because a part of distdbg failed: one Unknown a failure, of all its ranks.

The registry of `protocol/` says which records tell of a failure. A rule is not needed, and no reader can forget one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from distdbg.evidence.jsonl import rank as rank_number
from distdbg.evidence.jsonl import text
from distdbg.evidence.run import NodeRecord, RankRecord
from distdbg.model import Unknown, fold_ranks, unfold_ranks
from distdbg.protocol import events, facts
from distdbg.protocol.agent_events import LogLost, Profile
from distdbg.protocol.message import Lost
from distdbg.wording import name_ranks

#: A broken worker may tell of a failure in each step: more are counted only.
_MOST = 64
_Lines = Sequence[tuple[int, Mapping[str, Any]]]
_Key = tuple[str, str, bool, str]


def failures_in_facts(lines: _Lines) -> tuple[Lost, ...]:
    """The failures of distdbg in one rank's facts."""
    found = (facts.failure_of(fact) for _, fact in lines)
    return tuple(lost for lost in found if lost is not None)


def own_failures(ranks: Iterable[RankRecord], nodes: Iterable[NodeRecord], launcher: _Lines) -> tuple[Unknown, ...]:
    """All failures of distdbg in the run. Equal ones are one Unknown, with their ranks or nodes."""
    found: dict[_Key, set[int]] = {}

    def add(lost: Lost, scope: str, number: int | None = None) -> None:
        who = found.setdefault((lost.what, lost.because, lost.decisive, scope if number is not None else ""), set())
        if number is not None:
            who.add(number)

    for rank in ranks:
        for lost in rank.failures:
            add(lost, "rank", rank.rank)
    for node in nodes:
        for event in _sum_lost_output(node.events):
            if (of_node := events.failure_of(event)) is not None:
                named = rank_number(event.get("rank"))
                add(of_node, *(("node", node.node_rank) if named is None else ("rank", named)))
    for _, event in launcher:
        if (of_launcher := events.failure_of(event)) is not None:
            add(of_launcher, "")
    unknowns = [_unknown(key, who) for key, who in found.items()]
    if len(unknowns) > _MOST:
        rest = Unknown(f"what {len(unknowns) - _MOST:,} more failures of distdbg cost", f"only {_MOST} are listed")
        unknowns = [*unknowns[:_MOST], rest]
    return tuple(unknowns)


def _sum_lost_output(lines: _Lines) -> Iterator[Mapping[str, Any]]:
    """The events of a node; of each stream of a rank one loss, with the bytes of all and the last reason."""
    bytes_lost: dict[tuple[object, object], int] = {}
    newest = {}
    for line, loss in LogLost.among(lines):
        stream = loss.rank, loss.stream
        bytes_lost[stream] = bytes_lost.get(stream, 0) + (loss.bytes or 0)
        newest[line] = stream
    last = {stream: line for line, stream in newest.items()}
    for line, event in lines:
        if (summed := newest.get(line)) is None:
            yield event
        elif last[summed] == line:
            yield {**event, "bytes": bytes_lost[summed]}


def _unknown(key: _Key, who: set[int]) -> Unknown:
    what, because, decisive, scope = key
    of = f" of {f'each of {scope}s' if len(who) > 1 else scope} {fold_ranks(who)}" if who else ""
    return Unknown(what + of, because, decisive)


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
