"""Compute active and reserved memory by event, the steps of the training, and the stacks that hold memory then."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from distdbg.evidence.frames import BACKWARD, FORWARD, INIT, OPTIMIZER
from distdbg.evidence.memory.answer import (
    ACTIVATIONS,
    BEFORE_RECORDING,
    GRADIENTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    UNATTRIBUTED,
    WORKSPACE,
    Holder,
    Moment,
)
from distdbg.evidence.memory.owners import module_of_name
from distdbg.evidence.memory.stacks import AllocationStack
from distdbg.evidence.memory.trace import MemoryTrace, living_at

_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
#: The largest are listed; of a file that is compared with another, practically all.
MOST_HOLDERS, COMPARED_HOLDERS = 40, 2000
_MOST_MODULES = 40
_FEWEST_STEPS = 3
_FEWEST_VALLEYS = 6
#: of the curve's whole range
_TOWERS = 0.3


@dataclass
class Levels:
    """Active and reserved bytes after each event; event -1 is the state before the first one.

    `active` has an entry more than there are events, the first for event -1. `reserved[n]` holds from event
    `reserved_at[n]` on.
    """

    active: array[int]
    reserved_at: list[int]
    reserved: list[int]
    #: the event after which the most is active; -1 where nothing later exceeds the memory at the start
    peak: int

    def active_after(self, event: int) -> int:
        return self.active[event + 1]

    def active_between(self, first: int, last: int) -> array[int]:
        """The active bytes after each event from `first` to `last`, both included."""
        return self.active[first + 1 : last + 2]

    def reserved_after(self, event: int) -> int:
        return self.reserved[bisect_right(self.reserved_at, event) - 1]


def levels(trace: MemoryTrace) -> Levels:
    active = array("q", accumulate(trace.delta, initial=trace.start))
    changes = [(r.at, _RESERVES[r.action] * r.size) for r in trace.rare if r.action in _RESERVES]
    at_end = sum(segment.size for segment in trace.segments)
    reserved = list(accumulate((size for _, size in changes), initial=at_end - sum(size for _, size in changes)))
    return Levels(active, [-1, *(event for event, _ in changes)], reserved, active.index(max(active)) - 1)


# -- steps --------------------------------------------------------------------------------------------------------


def steps(trace: MemoryTrace, levels: Levels) -> tuple[list[int], str]:
    """The event after which each step is over, and the source of that. Empty where nothing marks steps."""
    if len(trace.marks) > _FEWEST_STEPS:  # the first one's beginning may have been dropped
        return [event - 1 for event, _ in trace.marks[1:]], f"distdbg's marks, from step {trace.marks[0][1]:,} on"
    ends = [bisect_left(trace.time_us, last) for _, last in trace.steps_us if trace.time_us]
    ends = sorted({min(e, trace.events - 1) for e in ends})
    if len(ends) >= _FEWEST_STEPS:
        return ends, "the optimizer's annotations"
    for before, words in ((OPTIMIZER, "the optimizer's allocations"), (BACKWARD, "the turns from backward to forward")):
        found = [
            event - 1
            for (event, phase), (_, previous) in zip(trace.phases[1:], trace.phases, strict=False)
            if previous == before and phase != before
        ]
        if len(found) >= _FEWEST_STEPS:
            return found, words
    if not any(phase == BACKWARD for _, phase in trace.phases):
        found = [place - 1 for place in valleys(levels.active)]
        if len(found) >= _FEWEST_VALLEYS:
            return found, "the valleys of its curve"
    return [], ""


def valleys(active: Sequence[int]) -> list[int]:
    """The places of the lowest level between two heights that tower above it; smaller ones are a layer's."""
    least, most = min(active), max(active)
    enough = (most - least) * _TOWERS
    found: list[int] = []
    low, high, at, falling = most, least, 0, False
    for event, level in enumerate(active):
        if falling:
            if level < low:
                low, at = level, event
            elif level - low > enough:
                found.append(at)
                falling, high = False, level
        elif level > high:
            high = level
        elif high - level > enough:
            falling, low, at = True, level, event
    return found


# -- who holds what -----------------------------------------------------------------------------------------------


class Kinds:
    """What an allocation is: by its name, where the file has that and it still stands, else by the phase of its birth
    and by whether it outlives that phase."""

    def __init__(self, trace: MemoryTrace) -> None:
        self.trace = trace
        self._modules: dict[int, str] = {}
        # An error ends a forward as its backward would: the exception frees what it meets, saved or not.
        ends = {event for event, _ in trace.phases} | {r.at for r in trace.rare if r.action == "oom"}
        self._at = sorted(ends)

    def of(self, n: int) -> str:
        trace = self.trace
        group = trace.stacks.groups[trace.group[n]]
        if (known := self.named(n)) is not None:
            return known[0]
        if group.workspace or group.holds:
            return group.holds or WORKSPACE
        if group.phase == INIT:  # a model that names all that it has, and not this
            stands = trace.owners is not None and trace.owners.whole and trace.death[n] == trace.events
            return UNATTRIBUTED if stands else PARAMETERS
        if group.phase not in (FORWARD, BACKWARD, OPTIMIZER):
            return UNATTRIBUTED
        if trace.birth[n] < 0:
            return OPTIMIZER_STATE if group.phase == OPTIMIZER else UNATTRIBUTED
        lasting = trace.death[n] >= self._end(trace.birth[n])
        return _kind(group, lasting=lasting)

    def named(self, n: int) -> tuple[str, str] | None:
        """(kind, name) of a tensor that was alive when the file was written."""
        trace = self.trace
        if trace.owners is None or trace.death[n] != trace.events:
            return None
        return trace.owners.named(trace.device, trace.address[n], trace.size[n])

    def module(self, n: int) -> str:
        """The module of an allocation, by its name, else by the forward that allocated it; "" where neither is
        known."""
        trace = self.trace
        if trace.owners is None:
            return ""
        if (known := self.named(n)) is not None:
            return module_of_name(known[1])
        group = trace.group[n]
        if group not in self._modules:
            self._modules[group] = trace.owners.module_of(trace.stacks.groups[group].frames)
        return self._modules[group]

    def _end(self, event: int) -> int:
        """The event at which the phase of `event` ends."""
        place = bisect_right(self._at, event)
        return self._at[place] if place < len(self._at) else self.trace.events


def _kind(group: AllocationStack, *, lasting: bool) -> str:
    if group.accumulates:
        return GRADIENTS
    if not lasting:
        return WORKSPACE
    return {FORWARD: ACTIVATIONS, BACKWARD: GRADIENTS, OPTIMIZER: OPTIMIZER_STATE}[group.phase]


def moment(
    trace: MemoryTrace, found: Levels, event: int, without: Mapping[int, int] | None = None, most: int = MOST_HOLDERS
) -> Moment:
    """All live memory after an event: the `most` largest holders, and what the others hold together."""
    kinds = Kinds(trace)
    by_group: dict[int, list[int]] = {}
    by_kind: dict[tuple[int, str], int] = {}
    by_phase: dict[str, int] = {}
    by_module: dict[str, dict[str, int]] = {}
    names: dict[int, list[tuple[int, str]]] = {}
    for n in living_at(trace, event):
        group, size = trace.group[n], trace.size[n]
        entry = by_group.setdefault(group, [0, 0])
        entry[0] += size
        entry[1] += 1
        key = group, kinds.of(n)
        by_kind[key] = by_kind.get(key, 0) + size
        phase = trace.stacks.groups[group].phase or _without_a_stack(trace, trace.birth[n])
        by_phase[phase] = by_phase.get(phase, 0) + size
        if trace.owners is not None:
            if module := kinds.module(n):
                part = by_module.setdefault(module, {})
                part[key[1]] = part.get(key[1], 0) + size
            if (named := kinds.named(n)) is not None:
                names.setdefault(group, []).append((size, named[1]))
    order = sorted(by_group, key=lambda g: -by_group[g][0])
    per_group: dict[int, dict[str, int]] = {}
    total: dict[str, int] = {}
    for (group, kind), size in sorted(by_kind.items(), key=lambda item: -item[1]):
        per_group.setdefault(group, {})[kind] = size
        total[kind] = total.get(kind, 0) + size
    shown = order[:most]
    return Moment(
        event=event,
        t=seconds_at(trace, event),
        active=sum(size for size, _ in by_group.values()),
        reserved=found.reserved_after(event),
        holders=tuple(
            Holder(g, by_group[g][0], by_group[g][1], per_group[g], (without or {}).get(g, 0), _names(names.get(g, [])))
            for g in shown
        ),
        kinds=dict(sorted(total.items(), key=lambda item: -item[1])),
        rest=sum(by_group[g][0] for g in order[most:]),
        phases=dict(sorted(by_phase.items(), key=lambda item: -item[1])),
        modules=_largest(by_module),
    )


def _without_a_stack(trace: MemoryTrace, birth: int) -> str:
    """The phase of an allocation without a phase in its stack: a loss that the script itself computes, a backward
    hook."""
    return BEFORE_RECORDING if birth < 0 else trace.marked_phase(birth) or "elsewhere"


def _names(found: Sequence[tuple[int, str]]) -> str:
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return max(found)[1] + more


def _largest(by_module: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    order = sorted(by_module, key=lambda name: -sum(by_module[name].values()))[:_MOST_MODULES]
    return {name: dict(sorted(by_module[name].items(), key=lambda item: -item[1])) for name in order}


def seconds_at(trace: MemoryTrace, event: int) -> float | None:
    """Since the first event, by the trace's own clock."""
    times = trace.time_us
    if not times or not times[0] or event < 0:
        return None
    return max(0, times[min(event, len(times) - 1)] - times[0]) / 1e6


def highest_between(found: Levels, bounds: Sequence[int]) -> list[int]:
    """The highest active bytes in each stretch that ends at one of the bounds."""
    begin, out = 0, []
    for end in bounds:
        out.append(max(found.active_between(begin, end), default=0))
        begin = end + 1
    return out
