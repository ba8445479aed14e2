"""The first operation of a group, in which hosts block while NCCL connects the members: no recorder has it yet.

The calls that each rank has recorded name the group, and the number of the call in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.ops import is_transfer
from distdbg.evidence.run import RankRecord
from distdbg.model import fold_ranks

#: torch's name of the default group, which a recorded call leaves out.
DEFAULT = "0"


class FirstCall(NamedTuple):
    """A collective that the hosts of some members are in; `number` counts the calls in the group."""

    group: str
    members: tuple[int, ...]
    operation: str
    number: int

    @property
    def title(self) -> str:
        group = f"group {self.group} of ranks {fold_ranks(self.members)}" if self.group else "the default group"
        return f"{self.operation} (call {self.number} in {group})"

    def find_missing(self, waiting: Iterable[int], dump: Dump) -> tuple[int, ...]:
        """The members that have not made this call, and those whose calls are not known."""
        others = set(self.members).difference(waiting)
        return tuple(sorted(rank for rank in others if not self._is_made_by(dump.ranks.get(rank))))

    def _is_made_by(self, rank_dump: RankDump | None) -> bool:
        calls = rank_dump.calls if rank_dump is not None else ()
        return any(call.group == self.group and call.number >= self.number for call in calls)


def find_first_calls(
    ranks: Iterable[int],
    standings: Mapping[int, Standing],
    dump: Dump,
    records: Mapping[int, RankRecord],
    groups: Collection[Group],
) -> dict[FirstCall, tuple[int, ...]]:
    """Return the calls that hosts are in, with the ranks that are in each."""
    calls: dict[FirstCall, tuple[int, ...]] = {}
    for rank in sorted(ranks):
        if standings[rank].doing is Doing.COLLECTIVE and rank in records:
            call = _first_call(standings[rank], dump.ranks[rank], records[rank], groups)
            if call is not None:
                calls[call] = (*calls.get(call, ()), rank)
    return calls


def _first_call(
    standing: Standing, rank_dump: RankDump, record: RankRecord, groups: Iterable[Group]
) -> FirstCall | None:
    """Return the call that the rank's host is in, or None if a recorder knows its group or the members are unknown."""
    call = rank_dump.calls[-1] if rank_dump.calls else None
    members = record.groups.get(call.group or DEFAULT) if call is not None else None
    if call is None or members is None or not call.number or is_transfer(call.operation):
        return None
    if not any((frame.file, frame.line) == (call.file, call.line) for frame in standing.frames[:1]):
        return None
    is_recorded = any(group.name == (call.group or DEFAULT) and standing.rank in group.logs for group in groups)
    return None if is_recorded else FirstCall(call.group, members, call.operation, call.number)
