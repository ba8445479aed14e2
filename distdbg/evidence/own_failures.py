"""List what the report does not know because a part of distdbg failed: one Unknown a failure, of all its ranks.

The registry of `protocol/` says which records tell of a failure. A rule is not needed, and no reader can forget one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from distdbg.evidence.jsonl import rank as rank_number
from distdbg.evidence.run import NodeRecord, RankRecord
from distdbg.model import Unknown, fold_ranks
from distdbg.protocol import events, facts
from distdbg.protocol.agent_events import LogLost
from distdbg.protocol.message import Lost

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
