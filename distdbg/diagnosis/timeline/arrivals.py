"""Who lets the others wait: by when each rank came to each collective, and by the phases that they were seen in.

A step takes every rank equally long, since a collective equalises it; but one that comes last has others waiting, and
waits for nobody. Of each collective the widest gap between arrivals parts those that were waited for from those that
waited. Clocks of different hosts differ by more than that: of those only what holds in spite of it is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from distdbg.diagnosis.timeline.groups import Group
from distdbg.evidence.recorder.log import GroupLog, Signatures
from distdbg.model import grouped

_NEWEST = 500
#: Collectives of a group. In the first ones caches are cold, kernels are chosen and DDP builds its buckets: who is late
#: there tells nothing of the steps that follow.
_WARM_UP = 10
#: Collectives. In fewer, a rank is last in most by chance.
_FEWEST = 20
#: Of the time, so much is lost for one rank before it is worth a word; and of all that is lost, so much is its own.
WORTH = 0.1
_OWN = 0.75
#: Below that it is the machine's scheduling, however short the steps.
_LEAST_LATE_S = 1e-3
#: Looks ten times a second are coarse, and on a crowded machine one rank is behind for some seconds by chance: ten
#: windows of ten looks tell a share to about 10 %.
_WORTH_BY_LOOKS = 0.2
_WAITS_SHOWN_BY = 0.1
_FEWEST_WINDOWS = 10
#: What agents report beside the shares of phases.
_NO_PHASES = frozenset({"windows", "late_us"})
#: Of two ranks the one that comes last is later than the other by so many times the delays of that one.
_MUCH_LATER = 4
#: A checkpoint, a compilation or a full disk makes a rank late once, and nobody a straggler: so much of the longest is
#: left out.
_EXCEPTIONS = 0.1


@dataclass(frozen=True)
class Late:
    """`ranks` came `late_s` after the others (the median), in `times` of `collectives`; `share` of the `span_s` seconds
    was lost so. `clock_error_s` is what the clocks of their hosts may differ by, 0 on one host. `side` is what came
    late: the host that enqueued, or the device that began what its host had enqueued in time; None where the two are
    one."""

    ranks: tuple[int, ...]
    group: Group
    late_s: float
    times: int
    collectives: int
    share: float
    clock_error_s: float
    span_s: float
    side: Literal["host", "device"] | None = None


def late_ranks(group: Group, hosts: Mapping[int, str]) -> Late | None:
    """The few of one group that the many wait for, or None: nobody, now one and now another, or it cannot be known."""
    logs = {rank: log for rank, log in group.logs.items() if len(log.sequence) >= _FEWEST}
    if len(logs) < 2 or len(logs) < len(group.ranks):
        return None
    last = min(log.last for log in logs.values())
    first = max(last - _NEWEST, _WARM_UP + 1, *(log.sequence[0] for log in logs.values()))
    offsets, error = _clocks(logs, hosts, first, last)
    rows = [row for s in range(first, last + 1) if (row := _row(logs, s, offsets)) is not None]
    if len(rows) < _FEWEST:
        return None
    found = _judge(group, rows, error)
    return replace(found, side="host") if found is not None and group.on_device else found


def late_devices(group: Group, signatures: Signatures) -> Late | None:
    """The same by devices: a collective ends on all of them at once, so who takes the shortest in it came last.

    That needs no clock; but durations, which ProcessGroupNCCL measures where it is told to. Operations with a root are
    left out: the root of a broadcast has sent its part before others begin.
    """
    found = _judge(group, rows, 0) if (rows := _rows_of_devices(group, signatures)) else None
    return replace(found, side="device") if found is not None else None


def nobody_waits(late: Late, signatures: Signatures) -> bool:
    """By the durations no device waits for these ranks: their hosts enqueue later, and all are ahead of the devices."""
    rows = _rows_of_devices(late.group, signatures)
    found = _judge(late.group, rows, 0) if rows else None
    return bool(rows) and (found is None or found.ranks != late.ranks)


def _rows_of_devices(group: Group, signatures: Signatures) -> list[list[tuple[int, int]]]:
    """Empty where too few collectives are timed on all ranks."""
    logs = {rank: log for rank, log in group.logs.items() if len(log.duration) >= _FEWEST}
    if len(logs) < 2 or len(logs) < len(group.ranks):
        return []
    last = min(log.last for log in logs.values())
    first = max(last - _NEWEST, _WARM_UP + 1, *(log.sequence[0] for log in logs.values()))
    rows = [row for s in range(first, last + 1) if (row := _row_of_devices(logs, s, signatures)) is not None]
    return rows if len(rows) >= _FEWEST else []


def _row_of_devices(
    logs: Mapping[int, GroupLog], sequence: int, signatures: Signatures
) -> list[tuple[int, int]] | None:
    """As `_row`, from when the first host had enqueued it."""
    places = {rank: at for rank, log in logs.items() if (at := log.index(sequence)) is not None}
    took = {rank: logs[rank].duration[at] for rank, at in places.items()}
    if len(took) < len(logs) or not all(took.values()):
        return None
    if any(signatures[logs[rank].signature[at]].rooted for rank, at in places.items()):
        return None
    begun = min(logs[rank].created[at] for rank, at in places.items())
    longest = max(took.values())
    return sorted((begun + int(1e6 * (longest - ms)), rank) for rank, ms in took.items())


def _row(logs: Mapping[int, GroupLog], sequence: int, offsets: Mapping[int, int]) -> list[tuple[int, int]] | None:
    """(arrival in ns, rank) of one collective, the first first."""
    found = []
    for rank, log in logs.items():
        at = log.index(sequence)
        if at is None:
            return None
        found.append((log.created[at] - offsets.get(rank, 0), rank))
    return sorted(found)


def _judge(group: Group, rows: Sequence[list[tuple[int, int]]], error: int) -> Late | None:
    lost: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in rows:
        gaps = [row[i + 1][0] - row[i][0] for i in range(len(row) - 1)]
        gap, at = max(gaps), gaps.index(max(gaps)) + 1
        late = tuple(sorted(rank for _, rank in row[at:]))
        if len(late) <= len(row) // 2 and gap > 2 * error:
            lost[late].append(gap)
    span = rows[-1][0][0] - rows[0][0][0]
    if not lost or span <= 0:
        return None
    ranks, times = max(lost.items(), key=lambda item: sum(item[1]))
    everything = sum(sum(other) for other in lost.values())
    longest = sorted(times)[-max(1, round(_EXCEPTIONS * len(times))) :]
    usual = sum(times) - sum(longest)
    share = usual / max(1, span - sum(longest))
    if share < WORTH or sum(times) < _OWN * everything:
        return None
    typical = median(sorted(times)[len(times) // 2 :]) / 1e9
    if typical < _LEAST_LATE_S:
        return None
    return Late(ranks, group, typical, len(times), len(rows), min(share, 1.0), error / 1e9, span / 1e9)


def _clocks(
    logs: Mapping[int, GroupLog], hosts: Mapping[int, str], first: int, last: int
) -> tuple[dict[int, int], int]:
    """(ns to take off each rank's times, ns that may be left over), by what must have come before what.

    Nobody leaves a blocking collective before all have come: whoever begins the next one does so after everybody's
    arrival at this one, and so two hosts bound each other's clock. Operations that are begun without waiting for the
    one before widen the offset by what a rank is late, which then stays unseen.
    """
    by_host = grouped((hosts.get(rank, ""), log) for rank, log in logs.items())
    reference, *others = sorted(by_host)
    ahead: dict[str, int] = {reference: 0}
    error = 0
    for host in others:
        least = _ahead_at_least(by_host[host], by_host[reference], first, last)
        most = -_ahead_at_least(by_host[reference], by_host[host], first, last)
        ahead[host] = (least + most) // 2
        error = max(error, abs(most - least) // 2)
    return {rank: ahead[hosts.get(rank, "")] for rank in logs}, error


def _ahead_at_least(one: Iterable[GroupLog], other: Iterable[GroupLog], first: int, last: int) -> int:
    """By how many ns the clock of `one` must be ahead of that of `other`: it came before those began the next."""
    found = []
    for sequence in range(first, last):
        came = [log.created[at] for log in one if (at := log.index(sequence)) is not None]
        left = [log.created[at] for log in other if (at := log.index(sequence + 1)) is not None]
        if came and left:
            found.append(max(came) - min(left))
    return max(found, default=0)


# -- phases -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Longer:
    """`rank` was in `phase` for `share` of the time, the others for `usual`; those were longer in `waits_in`."""

    rank: int
    phase: str
    share: float
    usual: float
    waits_in: str


def longer_phases(phases: Mapping[int, Mapping[str, int]]) -> list[Longer]:
    """Ranks that spend more time in one phase than the others, who spend it in another: there they wait.

    Two ranks differ from each other equally: of these, arrivals say which one works and which one waits.
    """
    shares = {
        rank: {name: count / 1000 for name, count in counts.items() if name not in _NO_PHASES}
        for rank, counts in phases.items()
        if counts.get("windows", 0) >= _FEWEST_WINDOWS
    }
    if len(shares) < 2 or len(shares) < len(phases):
        return []
    judged = sorted(shares) if len(shares) > 2 else _last_of_two(phases)
    compared = shares if len(shares) > 2 else {rank: share for rank, share in shares.items() if rank not in judged}
    names = {name for share in shares.values() for name in share} - {"exiting"}
    usual = {name: median(share.get(name, 0.0) for share in compared.values()) for name in names}
    found = []
    for rank in judged:
        share = shares[rank]
        more = {name: share.get(name, 0.0) - usual[name] for name in names}
        phase, waits_in = max(more, key=lambda n: more[n]), min(more, key=lambda n: more[n])
        if more[phase] >= _WORTH_BY_LOOKS and more[waits_in] <= -_WAITS_SHOWN_BY:
            found.append(Longer(rank, phase, share.get(phase, 0.0), usual[phase], waits_in))
    return found if len(found) <= len(shares) // 2 else []


def _last_of_two(phases: Mapping[int, Mapping[str, int]]) -> list[int]:
    """The one of two ranks that comes last nearly always; empty where they take turns, or have no agent in common."""
    late_us = {rank: counts.get("late_us", 0) for rank, counts in phases.items()}
    first, last = sorted(late_us, key=lambda rank: late_us[rank])
    if late_us[last] < max(_LEAST_LATE_S * 1e6, _MUCH_LATER * late_us[first]):
        return []
    return [last]
