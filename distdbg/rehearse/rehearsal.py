"""What a run on simulated devices shows: the peak of each rank, and the collectives of a step by group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from distdbg.diagnosis.timeline.groups import group_title
from distdbg.evidence.memory.growth import device_peak
from distdbg.evidence.recorder.schedule import Enqueued
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import grouped
from distdbg.protocol.chosen_ranks import ChosenRanks
from distdbg.rehearse.crossed import find_crossing

#: A group's name and members, and by rank what each has enqueued in it.
Group = tuple[str, tuple[int, ...]]
Members = dict[Group, dict[int, list[Enqueued]]]
#: A group, and the number of a collective in it.
_Collective = tuple[Group, int]
#: Ranks of a cycle that are described; a mesh of two dimensions has four.
_MAX_CYCLE_STEPS = 8


@dataclass(frozen=True)
class RankPeak:
    """Bytes of a rank's device. `reserved` is the most that the allocator held, `beside` what others than torch's
    allocator have (context, communicators), `total` what the device has, 0 where it is not known; `step` is the one by
    which `allocated` was reached."""

    rank: int
    allocated: int
    reserved: int
    total: int
    step: int
    beside: int = 0

    @property
    def left(self) -> int:
        return self.total - self.beside - self.allocated


@dataclass(frozen=True)
class Row:
    """Operations of one kind that one line enqueues in one phase of a step. `bytes` are of all `count` together.
    `module` is the path of that whose parameters they are about, with a * for numbers."""

    operation: str
    count: int
    bytes: int
    where: str
    phase: str
    module: str = ""


@dataclass(frozen=True)
class GroupSchedule:
    """The collectives of a group in one step, those of its rank with the most; `across` nodes or inside one.

    `difference` says what first differs between its ranks over the whole run; empty where nothing does. `order` has for
    each operation of the step its place among those of all groups of the rank, and its row.
    """

    title: str
    ranks: tuple[int, ...]
    across: bool
    rows: tuple[Row, ...]
    difference: str = ""
    rank: int = 0
    order: tuple[tuple[int, int], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(row.bytes for row in self.rows)


@dataclass(frozen=True)
class Rehearsal:
    """`step` is the one whose collectives are shown; 0: no step was seen, and they are those of the whole run.
    `ran_out` are the ranks whose device had too little memory. `chosen`: only these ranks were run. `crossed` says
    which collectives of two groups come in another order on another rank; empty where none do."""

    peaks: tuple[RankPeak, ...]
    groups: tuple[GroupSchedule, ...]
    step: int
    ran_out: tuple[int, ...] = ()
    chosen: ChosenRanks | None = None
    crossed: str = ""

    @property
    def highest(self) -> RankPeak | None:
        return max(self.peaks, key=lambda peak: (peak.allocated, -peak.rank), default=None)


def rehearsal(
    evidence: RunEvidence,
    schedules: Mapping[int, Sequence[Enqueued]],
    step_ends: Mapping[int, Sequence[int]],
    ran_out: Sequence[int] = (),
    chosen: ChosenRanks | None = None,
) -> Rehearsal:
    """`schedules` and `step_ends` (ns since the epoch) are by rank; either may be empty."""
    peaks = [peak for record in evidence.ranks if (peak := _peak(record)) is not None]
    steps = min((len(ends) for ends in step_ends.values()), default=0)
    members = _members(evidence, schedules, chosen)
    groups = _groups(evidence, members, step_ends, steps, chosen)
    return Rehearsal(tuple(peaks), tuple(groups), steps, tuple(ran_out), chosen, crossed_order(members))


def _peak(record: RankRecord) -> RankPeak | None:
    peak = device_peak(record.memory) if record.memory is not None else None
    if peak is None or record.memory is None:
        return None
    points = (*record.memory.course, *record.memory.points)
    reserved = max((point.reserved or 0 for point in points), default=0)
    beside = max((point.used - point.reserved for point in points if point.used and point.reserved), default=0)
    return RankPeak(
        record.rank, peak.bytes, reserved, max((point.total or 0 for point in points), default=0), peak.step,
        max(0, beside),
    )  # fmt: skip


def _members(evidence: RunEvidence, schedules: Mapping[int, Sequence[Enqueued]], chosen: ChosenRanks | None) -> Members:
    everybody = tuple(range(chosen.size)) if chosen is not None else tuple(record.rank for record in evidence.ranks)
    members: Members = {}
    for rank, schedule in sorted(schedules.items()):
        by_name = grouped((one.group, one) for one in schedule)
        for name, own in by_name.items():
            members.setdefault((name, _ranks_of(evidence, rank, name) or everybody), {})[rank] = own
    return members


def _groups(
    evidence: RunEvidence,
    members: Members,
    step_ends: Mapping[int, Sequence[int]],
    steps: int,
    chosen: ChosenRanks | None,
) -> list[GroupSchedule]:
    node_of = {record.rank: record.node_rank for record in evidence.ranks}
    if chosen is not None:
        node_of = {rank: chosen.node_of(rank) for rank in range(chosen.size)}
    found = []
    for (name, ranks), by_rank in members.items():
        of_step = {rank: _of_step(own, step_ends.get(rank, ()), steps) for rank, own in by_rank.items()}
        most = max(of_step, key=lambda rank: (len(of_step[rank]), -rank))
        rows = _rows(of_step[most])
        if rows:
            across = len({node_of.get(rank) for rank in ranks}) > 1
            title = group_title(name, by_rank[most][0].description, ranks)
            places = {_row_key(row): place for place, row in enumerate(rows)}
            order = tuple((one.at, places[_key(one)]) for one in of_step[most])
            found.append(GroupSchedule(title, ranks, across, rows, _difference(by_rank), most, order))
    return sorted(found, key=lambda group: (-group.bytes, group.ranks))


def _ranks_of(evidence: RunEvidence, rank: int, name: str) -> tuple[int, ...]:
    record = next((record for record in evidence.ranks if record.rank == rank), None)
    return record.groups.get(name, ()) if record is not None else ()


def _of_step(operations: Sequence[Enqueued], ends: Sequence[int], step: int) -> Sequence[Enqueued]:
    """Those between the ends of the steps before and of `step`; all where no step is known."""
    if not step or len(ends) < step:
        return operations
    begin = ends[step - 2] if step > 1 else 0
    return [one for one in operations if begin < one.at <= ends[step - 1]]


def _key(one: Enqueued) -> tuple[str, str, str, str]:
    line = f"{one.line.file}:{one.line.line}" if one.line is not None else ""
    module = ".".join("*" if word.isdigit() else word for word in one.module.split("."))
    return one.operation, line, one.phase, module


def _row_key(row: Row) -> tuple[str, str, str, str]:
    return row.operation, row.where, row.phase, row.module


def _rows(operations: Sequence[Enqueued]) -> tuple[Row, ...]:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str, str]] = Counter()
    for one in operations:
        counts[_key(one)] += 1
        sizes[_key(one)] += one.bytes
    rows = [Row(key[0], count, sizes[key], *key[1:]) for key, count in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, -row.count, row.operation)))


def _difference(by_rank: Mapping[int, Sequence[Enqueued]]) -> str:
    """The first collective in which two neighbours among the members differ.

    By their numbers: a recorder keeps the newest operations, and of each group as many as there is room for.
    """
    for (first, ones), (second, others) in pairwise(sorted(by_rank.items())):
        one, other = _collectives(ones), _collectives(others)
        if not one or not other:
            continue
        for number in sorted(one.keys() | other.keys()):
            if number >= max(min(one), min(other)) and _what(one, number) != _what(other, number):
                here, there = _named(one.get(number)), _named(other.get(number))
                return f"number {number} is {here} on rank {first} and {there} on rank {second}"
    return ""


def crossed_order(members: Members) -> str:
    """Describe collectives of several groups that the ranks enqueue in contradictory orders; empty if there are none.

    If their streams or the device have room for one of them only, each of these ranks waits for another one.
    """
    enqueued: dict[int, dict[_Collective, Enqueued]] = defaultdict(dict)
    for group, by_rank in members.items():
        for rank, operations in by_rank.items():
            for number, parts in _collectives(operations).items():
                enqueued[rank][group, number] = parts[0]
    orders = {rank: sorted(own, key=lambda key: own[key].at) for rank, own in sorted(enqueued.items())}
    cycle = find_crossing(orders)
    return "; ".join(
        f"rank {step.rank} enqueues {_numbered(step.first, enqueued[step.rank])} before "
        f"{_numbered(step.then, enqueued[step.rank])}"
        for step in cycle[:_MAX_CYCLE_STEPS]
    )


def _numbered(collective: _Collective, enqueued: Mapping[_Collective, Enqueued]) -> str:
    (name, ranks), number = collective
    operation = enqueued[collective]
    return f"{_named([operation])} (number {number} in {group_title(name, operation.description, ranks)})"


def _collectives(operations: Sequence[Enqueued]) -> dict[int, list[Enqueued]]:
    """By number; the parts of a coalesced one share a number. Empty where a group was made again under its name."""
    found: dict[int, list[Enqueued]] = {}
    newest = -1
    for one in operations:
        if 0 <= one.number < newest:
            return {}
        if one.number >= 0:
            newest = one.number
            found.setdefault(newest, []).append(one)
    return found


def _what(collectives: Mapping[int, Sequence[Enqueued]], number: int) -> list[tuple[str, int]]:
    return [one.what for one in collectives.get(number, ())]


def _named(parts: Sequence[Enqueued] | None) -> str:
    if not parts:
        return "missing"
    one = parts[0]
    where = f" at {one.line.file.rpartition('/')[2]}:{one.line.line}" if one.line is not None else ""
    return f"{one.operation} of {one.bytes:,} bytes{where}"
