"""Measure by how much a rank is later than the others of its node: the last one keeps the others waiting. Pure.

A page has when the rank last came to a forward and to a backward, and how often it has (worker/page.py); all processes
of a machine share that clock, and ranks of different nodes do not. Looked at ten times a second: of the ranks that have
come as often as any, each is so much later than the first. One that is still missing is not counted until it is there.
A rank that only waits inside the forward or the backward (FSDP, tensor parallelism) comes to the next one level with
the others: what is told is the larger of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from statistics import median
from typing import TypeVar

_FEWEST = 5
_NEWEST = 30
#: What was seen longer ago tells nothing of how it goes now.
_OLD_S = 10.0
_Rank = TypeVar("_Rank", bound=Hashable)


class ArrivalDelay:
    """One rank's, by what it came to."""

    def __init__(self) -> None:
        self._ns: dict[str, deque[tuple[float, int]]] = {}

    def add(self, gate: str, ns: int, now: float) -> None:
        self._ns.setdefault(gate, deque(maxlen=_NEWEST)).append((now, ns))

    def newest_ms(self, now: float) -> float | None:
        """The median of the newest looks; None before there are enough, for a rank that is alone on its node, and for
        one that comes there more or less often than the others. `now`: seconds of any clock."""
        newest = [[ns for t, ns in found if now - t <= _OLD_S] for found in self._ns.values()]
        known = [median(found) for found in newest if len(found) >= _FEWEST]
        return round(max(known) / 1e6, 3) if known else None


def behind_first(came: Mapping[_Rank, tuple[int, int]]) -> dict[_Rank, int]:
    """(how often, when last) by rank becomes ns after the first, of those that came as often as any; none of one."""
    most = max((count for count, _ in came.values()), default=0)
    there = {rank: at for rank, (count, at) in came.items() if count == most}
    if most == 0 or len(there) < 2:
        return {}
    first = min(there.values())
    return {rank: at - first for rank, at in there.items()}
