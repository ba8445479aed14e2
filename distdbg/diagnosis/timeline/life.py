"""Work between the looks of a dump that no launch's detector requested."""

from __future__ import annotations

from itertools import pairwise

from distdbg.diagnosis.timeline.liveness import CHILD_COMPUTES, MOVES_BYTES, SWITCHES, Work, WorkRate, work_of
from distdbg.evidence.dump import Dump, RankDump
from distdbg.protocol.dump import Descendant
from distdbg.wording import name_ranks


def life(dump: Dump, *, waiting: bool) -> str:
    """In words; empty where there is none.

    `waiting`: a rank waits for another. Then CPU time does not count, since a wait on a device uses it, too; a launch's
    detector watches for long enough to compare the ranks.
    """
    rates = {rank: work_rate(had) for rank, had in dump.ranks.items()}
    match work_of(rates.values(), cpu_counts=not waiting and not dump.missing):
        case Work.MOVES_BYTES:
            moving = tuple(rank for rank, rate in rates.items() if rate.moved >= MOVES_BYTES)
            return f"{name_ranks(moving)} read or wrote between the looks"
        case Work.COMPUTES:
            return "all ranks compute"
    return ""


def busy_children(had: RankDump) -> tuple[Descendant, ...]:
    """The processes below a rank that compute: by their CPU time between the looks, or running in both of them, since
    on a crowded machine they get little of a CPU."""
    first, last = had.first, had.last
    before = {one.pid: one for one in first.below}
    found = []
    for one in last.below:
        earlier = before.get(one.pid)
        share = 0.0
        if earlier is not None and last.t > first.t:
            share = ((one.cpu_s or 0.0) - (earlier.cpu_s or 0.0)) / (last.t - first.t)
        if share >= CHILD_COMPUTES or (one.state == "R" and (earlier is None or earlier.state == "R")):
            found.append(one)
    return tuple(found)


def runs_at_times(had: RankDump) -> bool:
    """Between the looks its judged thread ran, again and again, though each look finds it at the same line."""
    pairs = [(look.rested, after.switched) for look, after in pairwise(had.looks)]
    return sum(after - rested for rested, after in pairs if rested is not None and after is not None) >= SWITCHES


def work_rate(had: RankDump) -> WorkRate:
    """Return the work between the looks, without what the looks themselves made the process do; 0 if unknown."""
    pairs = [(look.after or look.process, following.process) for look, following in pairwise(had.looks)]
    begins = [look.t if look.after is None else look.after.t for look in had.looks[:-1]]
    seconds = sum(_increase(begin, following.t) for begin, following in zip(begins, had.looks[1:], strict=True))
    if not seconds:
        return WorkRate(0.0, 0.0)
    cpu_s = sum(_increase(before.cpu_s, after.cpu_s) for before, after in pairs)
    read = sum(_increase(before.read, after.read) for before, after in pairs)
    written = sum(_increase(before.written, after.written) for before, after in pairs)
    return WorkRate(cpu_s / seconds, (read + written) / seconds)


def _increase(before: float | None, after: float | None) -> float:
    return max(0.0, after - before) if before is not None and after is not None else 0.0
