"""Ranks whose last call differs from that of the rank that died, by the calls that each has recorded.

A process takes its flight recorder with it, and one that gloo aborts takes its peers with it, too. The calls of each
rank lie in node-local memory and outlive it (worker/calls.py): operation, elements, type, and the sequence number of
the collective in its group. Operations that C++ begins by itself, such as DDP's reductions, are not among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.waits.mismatch import TIMES_BEFORE
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
    `number`th collective there is meant. `same_operation`: called at the same line. `apart`: of two sides of equal size
    the one whose size is new at its line."""

    sides: tuple[tuple[str, tuple[int, ...]], ...]
    number: int
    same_operation: bool
    #: of each side the line of its call; empty where that is not known
    called_at: tuple[str, ...]
    apart: tuple[int, ...] = ()

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
    return _parted(dump, first, found[first])


def _parted(dump: Dump, place: _Place, sides: _Sides) -> Parted:
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    named = tuple((call_words(*brought), tuple(ranks)) for brought, ranks in ordered)
    calls = [[_call(dump, place, rank) for rank in ranks] for _, ranks in ordered]
    lines = [{(call.file, call.line) for call in side} for side in calls]
    same_operation = len({operation for operation, _, _ in sides}) == 1 and not lines[0].isdisjoint(*lines[1:])
    called_at = tuple(side[0].at for side in calls)
    return Parted(named, place[1], same_operation, called_at, _new_at_its_line(dump, place, sides))


def _call(dump: Dump, place: _Place, rank: int) -> Call:
    return next(call for call in dump.ranks[rank].calls if _counts(call) and _place(call) == place)


def _new_at_its_line(dump: Dump, place: _Place, sides: _Sides) -> tuple[int, ...]:
    """Where both of two sides call one line, and it had one size on all ranks before: the side with another size."""
    if len(sides) != 2:
        return ()
    usual = set()
    lines = set()
    for rank in (rank for ranks in sides.values() for rank in ranks):
        calls = [call for call in dump.ranks[rank].calls if _counts(call)]
        at = next(n for n, call in enumerate(calls) if _place(call) == place)
        line = calls[at].file, calls[at].line, calls[at].operation
        before = [call for call in calls[:at] if (call.file, call.line, call.operation) == line]
        if len(before) < TIMES_BEFORE or not calls[at].line:
            return ()
        lines.add(line)
        usual |= {(call.size, call.dtype) for call in before}
    apart = [tuple(ranks) for (_, *size), ranks in sides.items() if tuple(size) not in usual]
    return apart[0] if len(lines) == len(usual) == len(apart) == 1 else ()


def _last(calls: Sequence[Call]) -> Call | None:
    return next((call for call in reversed(calls) if _counts(call)), None)


def _counts(call: Call) -> bool:
    return call.number > 0 and not is_transfer(call.operation)


def _place(call: Call) -> _Place:
    return call.group, call.number


def call_words(operation: str, size: int | None, dtype: str) -> str:
    """`all_reduce of 2 elements (float32)`."""
    return operation if size is None else f"{operation} of {size} {'element' if size == 1 else 'elements'} ({dtype})"
