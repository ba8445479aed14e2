"""What a run on simulated devices shows: the peak of each rank, and the collectives of a step by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from distdbg.diagnosis.timeline.groups import group_title
from distdbg.evidence.memory.device_peak import device_peak
from distdbg.evidence.recorder.schedule import Enqueued
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.protocol.chosen_ranks import ChosenRanks


@dataclass(frozen=True)
class RankPeak:
    """Bytes of a rank's device. `reserved` is the most that the allocator held, `total` what the device has, 0 where it
    is not known; `step` is the one by which `allocated` was reached."""

    rank: int
    allocated: int
    reserved: int
    total: int
    step: int


@dataclass(frozen=True)
class Row:
    """Operations of one kind that one line enqueues in one phase of a step. `bytes` are of all `count` together."""

    operation: str
    count: int
    bytes: int
    where: str
    phase: str


@dataclass(frozen=True)
class GroupSchedule:
    """The collectives of a group in one step, those of its rank with the most; `across` nodes or inside one.

    `difference` says what first differs between its ranks over the whole run; empty where nothing does.
    """

    title: str
    ranks: tuple[int, ...]
    across: bool
    rows: tuple[Row, ...]
    difference: str = ""

    @property
    def bytes(self) -> int:
        return sum(row.bytes for row in self.rows)


@dataclass(frozen=True)
class Rehearsal:
    """`step` is the one whose collectives are shown; 0: no step was seen, and they are those of the whole run.
    `ran_out` are the ranks whose device had too little memory. `chosen`: only these ranks were run."""

    peaks: tuple[RankPeak, ...]
    groups: tuple[GroupSchedule, ...]
    step: int
    ran_out: tuple[int, ...] = ()
    chosen: ChosenRanks | None = None

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
    groups = _groups(evidence, schedules, step_ends, steps, chosen)
    return Rehearsal(tuple(peaks), tuple(groups), steps, tuple(ran_out), chosen)


def _peak(record: RankRecord) -> RankPeak | None:
    peak = device_peak(record.memory) if record.memory is not None else None
    if peak is None or record.memory is None:
        return None
    points = (*record.memory.course, *record.memory.points)
    reserved = max((point.reserved or 0 for point in points), default=0)
    return RankPeak(
        record.rank, peak.bytes, reserved, max((point.total or 0 for point in points), default=0), peak.step
    )


def _groups(
    evidence: RunEvidence,
    schedules: Mapping[int, Sequence[Enqueued]],
    step_ends: Mapping[int, Sequence[int]],
    steps: int,
    chosen: ChosenRanks | None,
) -> list[GroupSchedule]:
    everybody = tuple(range(chosen.size)) if chosen is not None else tuple(record.rank for record in evidence.ranks)
    node_of = {record.rank: record.node_rank for record in evidence.ranks}
    if chosen is not None:
        node_of = {rank: chosen.node_of(rank) for rank in everybody}
    members: dict[tuple[str, tuple[int, ...]], dict[int, list[Enqueued]]] = {}
    for rank, schedule in sorted(schedules.items()):
        by_name: dict[str, list[Enqueued]] = {}
        for one in schedule:
            by_name.setdefault(one.group, []).append(one)
        for name, own in by_name.items():
            members.setdefault((name, _ranks_of(evidence, rank, name) or everybody), {})[rank] = own
    found = []
    for (name, ranks), by_rank in members.items():
        most = max(by_rank, key=lambda rank: (len(_of_step(by_rank[rank], step_ends.get(rank, ()), steps)), -rank))
        rows = _rows(_of_step(by_rank[most], step_ends.get(most, ()), steps))
        if rows:
            across = len({node_of.get(rank) for rank in ranks}) > 1
            title = group_title(name, by_rank[most][0].description, ranks)
            found.append(GroupSchedule(title, ranks, across, rows, _difference(by_rank)))
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


def _rows(operations: Sequence[Enqueued]) -> tuple[Row, ...]:
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    for one in operations:
        line = f"{one.line.file}:{one.line.line}" if one.line is not None else ""
        key = one.operation, line, one.phase
        counts[key] += 1
        sizes[key] += one.bytes
    rows = [Row(key[0], count, sizes[key], key[1], key[2]) for key, count in counts.items()]
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
