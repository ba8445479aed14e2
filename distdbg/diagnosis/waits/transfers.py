"""Whom a rank waits for in send and recv, by what both sides have begun. gloo's flight recorder knows none of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.diagnosis.timeline.standing import Standing
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.ops import RECEIVE, SEND, of_kind
from distdbg.evidence.recorder.calls import NUMBERS, Call

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
