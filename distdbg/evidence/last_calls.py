"""Ranks that came to the call which somebody died of with something else, as the calls tell that they wrote down.

A process takes its flight recorder with it, and one that gloo aborts takes its peers with it, too. What each had called
lies in node-local memory and outlives them (worker/calls.py): operation, elements, type, and the how manyth collective
of its group it was. Operations that C++ begins by itself, such as DDP's reductions, are not among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.evidence.calls import Call
from distdbg.evidence.dump import Dump

_TRANSFERS = ("send", "isend", "recv", "irecv")


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
    """Among the last calls of those that `failed`, the first that not all ranks who made it agree in."""
    found = []
    for rank in failed:
        last = _last(dump.ranks[rank].calls) if rank in dump.ranks else None
        if last is not None and (parted := _parted(dump, last)) is not None:
            found.append((last.t, rank, parted))
    return min(found)[2] if found else None


def _last(calls: Iterable[Call]) -> Call | None:
    found = [call for call in calls if call.operation not in _TRANSFERS and call.number]
    return found[-1] if found else None


def _parted(dump: Dump, last: Call) -> Parted | None:
    """A rank that has left it out has come to it with its next one; one that has not come yet tells nothing."""
    sides: dict[tuple[str, int | None, str], list[int]] = defaultdict(list)
    for rank, had in sorted(dump.ranks.items()):
        call = next((c for c in reversed(had.calls) if _is_same_place(c, last)), None)
        if call is not None:
            sides[call.operation, call.size, call.dtype].append(rank)
    if len(sides) < 2:
        return None
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    named = tuple((_words(*brought), tuple(ranks)) for brought, ranks in ordered)
    return Parted(named, last.number, len({operation for operation, _, _ in sides}) == 1)


def _is_same_place(call: Call, last: Call) -> bool:
    return (call.group, call.number) == (last.group, last.number) and call.operation not in _TRANSFERS


def _words(operation: str, size: int | None, dtype: str) -> str:
    return operation if size is None else f"{operation} of {size} {'element' if size == 1 else 'elements'} ({dtype})"
