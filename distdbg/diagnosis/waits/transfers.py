"""Whom a rank waits for in send and recv, by what both sides have begun. gloo's flight recorder knows none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

    Where all have, and yet this rank waits, the wait is for nobody: tags or sizes may differ, which is not recorded.
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
    words = " or ".join(f"{way} {'to' if way == 'send' else 'from'} rank {peer}" for way, peer in sorted(peers))
    awaited = tuple(sorted({peer for _, peer in peers}))
    return OpenTransfer(words or standing.function, awaited, since, either=len(peers) > 1)


def device_transfer(rank: int, oldest: Transfer, dump: Dump, opened: Mapping[int, OpenOperation]) -> OpenTransfer:
    """For a rank whose device waits in a send or recv: its peer, if that one has not begun the other half, or has
    and its device is still in an older operation."""
    had, peer = dump.ranks[rank], peer_of(dump.ranks[rank], oldest)
    other = dump.ranks.get(peer)
    own, others = (_SENDS, _RECEIVES) if oldest.sends else (_RECEIVES, _SENDS)
    if other is not None and had.calls and other.calls:
        missing = _ahead(_begun(had.calls, own).get(peer, 0), _answered(other, rank, others))
    else:
        missing = other is None or _recorded(had, peer, sends=oldest.sends) > _recorded(
            other, rank, sends=not oldest.sends
        )
    half = opened[peer].transfer if peer in opened else None
    answers = other is not None and half is not None and half.sends is not oldest.sends and peer_of(other, half) == rank
    what = f"{'send to' if oldest.sends else 'recv from'} rank {peer}"
    return OpenTransfer(what, (peer,) if missing or (peer in opened and not answers) else (), oldest.created / 1e9)


def peer_of(had: RankDump, transfer: Transfer) -> int:
    """The global rank of the other side: a recorder counts as the group does."""
    logs = had.recorder.groups.values() if had.recorder is not None else ()
    members = next((log.ranks for log in logs if log.name == transfer.group and log.ranks), ())
    return members[transfer.peer] if transfer.peer < len(members) else transfer.peer


def _recorded(had: RankDump, peer: int, *, sends: bool) -> int:
    """How many transfers with this peer the recorder has."""
    found = had.recorder.transfers if had.recorder is not None else ()
    return sum(1 for t in found if t.sends is sends and peer_of(had, t) == peer)


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
