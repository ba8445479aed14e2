"""Read how far the nodes' clocks are from the launcher's, and put the times of a node's records on that clock."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distdbg.evidence.dump import Look, RankDump
from distdbg.evidence.jsonl import finite, number
from distdbg.evidence.recorder.log import RecorderLog
from distdbg.model import is_plausible_time
from distdbg.protocol.dump import PageReading
from distdbg.protocol.launcher_events import NodeClock

Lines = tuple[tuple[int, dict[str, Any]], ...]

#: Fields of events and facts that are epoch seconds of the node's clock.
_TIMES = ("t", "started", "ended", "asked_to_stop")
#: The largest time of a flight recorder.
_MAX_NS = 2**63 - 1
_PAGE_TIMES = ("forward_t", "backward_t", "optimizer_t")


@dataclass(frozen=True)
class ClockOffset:
    """A node's clock is ahead of the launcher's by `ahead_s` (below 0 if it is behind), or by up to `within_s` more.

    `line` is that of the launcher's events.jsonl.
    """

    node_rank: int
    host: str
    ahead_s: float
    within_s: float
    line: int


def clock_offsets(events: Sequence[tuple[int, Mapping[str, Any]]]) -> tuple[ClockOffset, ...]:
    """The newest measurement of each node whose clock differs. The smaller bound is taken: it is certain."""
    found: dict[int, ClockOffset] = {}
    for line, clock in NodeClock.among(events):
        ahead, other = sorted((clock.least_s, clock.most_s), key=abs)
        if not is_plausible_time(abs(other)):
            continue
        found[clock.node_rank] = ClockOffset(clock.node_rank, clock.host, ahead, abs(other - ahead), line)
    return tuple(found[node] for node in sorted(found))


def shift_lines(lines: Lines, ahead_s: float) -> Lines:
    """Events or facts of a node, by the launcher's clock."""
    return tuple((line, shift_record(record, ahead_s)) for line, record in lines) if ahead_s else lines


def shift_record(record: dict[str, Any], ahead_s: float) -> dict[str, Any]:
    """One event, fact or exit.json; the messages of the kernel and the threads of a fact are part of it."""
    own: dict[str, Any] = {name: t - ahead_s for name in _TIMES if (t := number(record, name)) is not None}
    if isinstance(threads := record.get("threads"), list):
        own["threads"] = [shift_record(one, ahead_s) if isinstance(one, dict) else one for one in threads]
    if isinstance(messages := record.get("messages"), list):
        own["messages"] = [_shift_message(one, ahead_s) for one in messages]
    return {**record, **own}


def _shift_message(message: object, ahead_s: float) -> object:
    match message:
        case [str(text), value] if (t := finite(value)) is not None:
            return [text, t - ahead_s]
    return message


def shift_rank_dump(rank: RankDump, ahead_s: float) -> RankDump:
    """What a dump has of a rank, by the launcher's clock."""
    if not ahead_s:
        return rank
    calls = tuple(replace(call, t=call.t - int(ahead_s * 1e9)) for call in rank.calls)
    return replace(rank, looks=tuple(_shift_look(look, ahead_s) for look in rank.looks), calls=calls)


def _shift_look(look: Look, ahead_s: float) -> Look:
    page = look.page
    if page is not None:
        times = {name: t - ahead_s for name in _PAGE_TIMES if (t := getattr(page, name)) is not None}
        page = PageReading.from_record({**page.fields(), **times})
    recorder = _shift_recorder(look.recorder, int(ahead_s * 1e9)) if look.recorder is not None else None
    return replace(look, t=look.t - ahead_s, page=page, recorder=recorder)


def _shift_recorder(log: RecorderLog, ahead_ns: int) -> RecorderLog:
    groups = {
        key: replace(group, created=array("q", [_shift_ns(t, ahead_ns) for t in group.created]))
        for key, group in log.groups.items()
    }
    transfers = [replace(transfer, created=_shift_ns(transfer.created, ahead_ns)) for transfer in log.transfers]
    return replace(log, groups=groups, transfers=transfers)


def _shift_ns(t: int, ahead_ns: int) -> int:
    return min(max(t - ahead_ns, 0), _MAX_NS)
