"""Ranks that came to the call which somebody died of with something else, as the calls tell that they wrote down.

A process takes its flight recorder with it, and one that gloo aborts takes its peers with it, too. What each had called
lies in node-local memory and outlives them (worker/calls.py): operation, elements, type, and the how manyth collective
of its group it was. Operations that C++ begins by itself, such as DDP's reductions, are not among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdbg.evidence.dump import Dump
from distdbg.evidence.ops import is_transfer
from distdbg.evidence.recorder.calls import Call

#: No rank is further ahead of another in a group whose collectives they make together.
_NEWEST = 256
_Place = tuple[str, int]
#: what was called (operation, elements, type) -> ranks
_Sides = dict[tuple[str, int | None, str], list[int]]


@dataclass(frozen=True)
class Parted:
    """`sides`: what was called, by which ranks, the largest side first; all are members of one group, and their
    `number`th collective there is meant."""

    sides: tuple[tuple[str, tuple[int, ...]], ...]
    number: int
    same_operation: bool

    @property
    def tie(self) -> bool:
        return len(self.sides[0][1]) == len(self.sides[1][1])


def parted_at_last(dump: Dump, failed: Iterable[int]) -> Parted | None:
    """Among the last calls of those that `failed`, the first that not all ranks who made it agree in.

    A rank that has left one out has come to its place with its next one; one that has not come yet tells nothing.
    """
    begun: dict[_Place, int] = {}
    for rank in failed:
        last = _last(dump.ranks[rank].calls) if rank in dump.ranks else None
        if last is not None:
            begun[_place(last)] = min(last.t, begun.get(_place(last), last.t))
    found: dict[_Place, _Sides] = {place: defaultdict(list) for place in begun}
    for rank, had in sorted(dump.ranks.items()):
        for call in had.calls[-_NEWEST:]:
            if _counts(call) and (place := _place(call)) in found:
                found[place][call.operation, call.size, call.dtype].append(rank)
    parted = [place for place, sides in found.items() if len(sides) > 1]
    if not parted:
        return None
    first = min(parted, key=lambda place: (begun[place], place))
    return _parted(first, found[first])


def _parted(place: _Place, sides: _Sides) -> Parted:
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    named = tuple((_words(*brought), tuple(ranks)) for brought, ranks in ordered)
    return Parted(named, place[1], len({operation for operation, _, _ in sides}) == 1)


def _last(calls: Sequence[Call]) -> Call | None:
    return next((call for call in reversed(calls) if _counts(call)), None)


def _counts(call: Call) -> bool:
    return call.number > 0 and not is_transfer(call.operation)


def _place(call: Call) -> _Place:
    return call.group, call.number


def _words(operation: str, size: int | None, dtype: str) -> str:
    return operation if size is None else f"{operation} of {size} {'element' if size == 1 else 'elements'} ({dtype})"
