"""The first collective of FSDP2 at which two ranks were in different modules, by the calls that each recorded. Pure.

Layers of one size make the same operations: a rank that leaves one out pairs wrongly, and waits only later.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.diagnosis.timeline.call_lines import ModelPlace
from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.calls import Call

#: No rank is further ahead of another in a group whose collectives they make together.
_NEWEST = 256


@dataclass(frozen=True)
class ModulesApart:
    """`number` of the group's collectives; `one` and `other` are the places of the two ranks."""

    number: int
    one: ModelPlace
    other: ModelPlace


def modules_apart(dump: Dump, one: int, other: int) -> ModulesApart | None:
    """None where they agree, and where it is not known that they agreed before."""
    ours, theirs = _of_modules(dump, one), _of_modules(dump, other)
    agreed: set[str] = set()
    for (group, number), call in ours.items():
        if (there := theirs.get((group, number))) is None:
            continue
        if (call.module, call.phase) == (there.module, there.phase):
            agreed.add(group)
        elif group in agreed:
            return ModulesApart(number, ModelPlace(call.module, call.phase), ModelPlace(there.module, there.phase))
    return None


def _of_modules(dump: Dump, rank: int) -> dict[tuple[str, int], Call]:
    """By group and number, the oldest first."""
    calls = dump.ranks[rank].calls[-_NEWEST:] if rank in dump.ranks else ()
    return {(call.group, call.number): call for call in calls if call.module and call.number}
