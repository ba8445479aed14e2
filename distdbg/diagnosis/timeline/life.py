"""Signs of work between the looks of a dump that no launch's detector has asked for."""

from __future__ import annotations

from distdbg.evidence.dump import Dump, RankDump
from distdbg.model import fold_ranks

#: Share of one CPU below which a rank does not work.
WORKS = 0.05
#: Bytes a second that a waiting process does not reach; and all compute alike where the slowest rank has so much of
#: what the fastest has. launch/watch/stall.py counts in the same way.
_MOVING = 16 << 10
_ALIKE = 0.25


def life(dump: Dump, *, somebody_waits: bool) -> str:
    """Signs of work between the looks. Only a launch's detector watches for long enough to count a rank's CPU time
    against it while the others wait; bytes that flow, and ranks that all compute, are work at any time.
    """
    moving = tuple(rank for rank, had in dump.ranks.items() if rate(had, "read") + rate(had, "written") >= _MOVING)
    if moving:
        return f"rank{'s' if len(moving) > 1 else ''} {fold_ranks(moving)} read or wrote between the looks"
    shares = [rate(had, "cpu_s") for had in dump.ranks.values()]
    if not somebody_waits and not dump.missing and shares and min(shares) >= max(WORKS, _ALIKE * max(shares)):
        return "all ranks compute"
    return ""


def rate(had: RankDump, name: str) -> float:
    """A counter's growth a second, between the first look and the last."""
    first, last = had.first, had.last
    before, after = getattr(first.process, name), getattr(last.process, name)
    if last.t <= first.t or before is None or after is None:
        return 0.0
    return max(0.0, float(after) - float(before)) / (last.t - first.t)
