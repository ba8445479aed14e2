"""Whom a rank waits for in send and recv, by what both sides have begun. gloo's flight recorder knows none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.timeline.device import OpenOperation
from distdbg.diagnosis.timeline.standing import Standing
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.ops import RECEIVE, SEND, of_kind
from distdbg.evidence.recorder.calls import NUMBERS, Call
from distdbg.evidence.recorder.log import Transfer

_SENDS, _RECEIVES = of_kind(SEND), of_kind(RECEIVE)


@dataclass(frozen=True)
class OpenTransfer:
    """`either`: one of those awaited alone may be it, since a receive may have been begun long ago, for later."""

    what: str
    awaited: tuple[int, ...]
    since: float | None
    either: bool = False


def open_transfer(standing: Standing, dump: Dump) -> OpenTransfer:
    """Of the peers that have not done their part; a peer that has is not waited for.

    Where all have, and yet this rank waits, the tags differ; else the wait is for nobody, since sizes are not recorded.
    """
    rank = standing.rank
    had = dump.ranks[rank]
    since = had.calls[-1].t / 1e9 if had.calls else None
    if _from_anybody(standing, had):
        everybody = sorted(dump.ranks.keys() | dump.missing.keys())
        return OpenTransfer("recv from any rank", tuple(r for r in everybody if r != rank), since)
    peers = _unpaired(rank, dump)
    if standing.peer is not None and any(p == standing.peer for _, p in peers):
        way = "send" if standing.function in _SENDS else "recv"
        peers = {(w, p) for w, p in peers if p == standing.peer and w == way} or peers
    if not peers and standing.peer is not None and not had.calls:
        peers = {(standing.function, standing.peer)}  # only the stack speaks
    tags = {} if peers else _tags_apart(rank, dump)
    peers |= set(tags)
    words = " or ".join(
        f"{way} {'to' if way == 'send' else 'from'} rank {peer}{tags.get((way, peer), '')}"
        for way, peer in sorted(peers)
    )
    awaited = tuple(sorted({peer for _, peer in peers}))
    return OpenTransfer(words or standing.function, awaited, since, either=len(peers) > 1)


def device_transfer(
    rank: int, batch: Sequence[Transfer], dump: Dump, opened: Mapping[int, OpenOperation]
) -> OpenTransfer:
    """For a rank whose device waits in sends and receives of one batch: the peers that have not begun their halves;
    where all have, those whose devices are still in an older operation."""
    had = dump.ranks[rank]
    halves = [(peer, one) for one in batch if (peer := peer_of(had, one)) is not None]
    late = {peer for peer, one in halves if _half_is_missing(rank, peer, one, dump)}
    late = late or {peer for peer, one in halves if peer in opened and not _answers(rank, peer, one, dump, opened)}
    words = " and ".join(f"{'send to' if one.sends else 'recv from'} rank {peer}" for peer, one in halves)
    words = words or "a send or recv, whose peer is not known"
    return OpenTransfer(words, tuple(sorted(late)), batch[0].created / 1e9)


def _half_is_missing(rank: int, peer: int, one: Transfer, dump: Dump) -> bool:
    """The peer has not begun the other half: by the calls of both, else by both recorders."""
    had, other = dump.ranks[rank], dump.ranks.get(peer)
    if other is None:
        return True
    own, others = (_SENDS, _RECEIVES) if one.sends else (_RECEIVES, _SENDS)
    if had.calls and other.calls:
        return _ahead(_begun(had.calls, own).get(peer, 0), _answered(other, rank, others))
    overrun = any(r.recorder is not None and r.recorder.overrun for r in (had, other))
    mine = _recorded(had, peer, sends=one.sends, all_of_them=not overrun)
    return mine > _recorded(other, rank, sends=not one.sends, all_of_them=not overrun)


def _answers(rank: int, peer: int, one: Transfer, dump: Dump, opened: Mapping[int, OpenOperation]) -> bool:
    """The peer's device is in the other half just now."""
    other = dump.ranks[peer]
    return any(half.sends is not one.sends and peer_of(other, half) == rank for half in opened[peer].transfers)


def peer_of(had: RankDump, transfer: Transfer) -> int | None:
    """The global rank of the other side: a recorder counts as the group does. None where it is not known."""
    if transfer.peer is None:
        return None
    logs = had.recorder.groups.values() if had.recorder is not None else ()
    members = next((log.ranks for log in logs if log.name == transfer.group and log.ranks), ())
    return members[transfer.peer] if transfer.peer < len(members) else transfer.peer


def _recorded(had: RankDump, peer: int, *, sends: bool, all_of_them: bool) -> int:
    """How many transfers with this peer the recorder has. Where older ones were lost, those that are open are compared:
    completed ones have their halves."""
    found = had.recorder.transfers if had.recorder is not None else ()
    counted = (t for t in found if t.sends is sends and (all_of_them or not t.done))
    return sum(1 for t in counted if peer_of(had, t) == peer)


def _from_anybody(standing: Standing, had: RankDump) -> bool:
    """`recv(tensor)` without a source."""
    last = had.calls[-1] if had.calls else None
    return standing.function in _RECEIVES and last is not None and last.operation in _RECEIVES and last.peer is None


def _unpaired(rank: int, dump: Dump) -> set[tuple[str, int]]:
    """(send or recv, peer) of this rank's transfers whose other half the peer has not begun."""
    found = set()
    for way, own, others in (("send", _SENDS, _RECEIVES), ("recv", _RECEIVES, _SENDS)):
        mine = _begun(dump.ranks[rank].calls, own)
        for peer, begun in mine.items():
            if peer is None:
                continue
            other = dump.ranks.get(peer)
            if _ahead(begun, _answered(other, rank, others) if other is not None else 0):
                found.add((way, peer))
    return found


def _tags_apart(rank: int, dump: Dump) -> dict[tuple[str, int], str]:
    """(send or recv, peer) -> ` with tag 1, begun at train.py:7`: the peer has begun as many halves, and too few with
    this tag. NCCL ignores tags."""
    had, found = dump.ranks[rank], {}
    for way, own, others in (("send", _SENDS, _RECEIVES), ("recv", _RECEIVES, _SENDS)):
        for peer in {call.peer for call in had.calls if call.operation in own and call.peer is not None}:
            other = dump.ranks.get(peer)
            if other is None or had.first.process.nccl:
                continue
            mine, theirs = _numbered(had, peer, own), _numbered(other, rank, others)
            both = mine.keys() & theirs.keys()
            tags, answered = (Counter(calls[number].tag for number in both) for calls in (mine, theirs))
            extra = tags - answered
            if extra and None not in tags.keys() | answered.keys():  # the newest of each tag are left over
                left = [max(n for n in both if mine[n].tag == tag) for tag in extra]
                first = mine[min(left)]
                found[way, peer] = f" with tag {first.tag}{f', begun at {first.at}' if first.at else ''}"
    return found


def _numbered(had: RankDump, peer: int, operations: frozenset[str]) -> dict[int, Call]:
    return {call.number: call for call in had.calls if call.operation in operations and call.peer == peer}


def _begun(calls: Iterable[Call], operations: frozenset[str]) -> dict[int | None, int]:
    """peer -> how many transfers with it were begun, as the newest of them says; None for receives from anybody.

    A rank's file keeps the newest calls alone, so that what is left of two of them cannot be counted and compared.
    """
    numbers: dict[int | None, int] = {}
    counts: dict[int | None, int] = {}
    for call in calls:
        if call.operation in operations:
            counts[call.peer] = counts.get(call.peer, 0) + 1
            numbers[call.peer] = call.number
    return {peer: numbers[peer] or count for peer, count in counts.items()}


def _answered(other: RankDump, rank: int, operations: frozenset[str]) -> int | None:
    """How many transfers with `rank` this one has begun; None where that is not known any more.

    A receive from anybody may be the other half of any send.
    """
    begun = _begun(other.calls, operations)
    if other.overrun and (rank not in begun or None in begun):
        return None
    return begun.get(rank, 0) + begun.get(None, 0)


def _ahead(mine: int, theirs: int | None) -> bool:
    """Numbers begin anew after a while: what seems to be far behind is ahead."""
    return theirs is not None and 0 < (mine - theirs) % NUMBERS < NUMBERS // 2
