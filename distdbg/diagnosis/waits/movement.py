"""Which ranks went on between the looks of a dump: by heartbeats, recorders, stacks, or switches of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping

from distdbg.diagnosis.timeline.life import runs_at_times, work_rate
from distdbg.diagnosis.timeline.liveness import COMPUTES
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.nccl_counts import went_on
from distdbg.evidence.dump import Dump, RankDump

#: Of a job without heartbeats: who stood in one place in so many looks stands there for good, whatever it burns.
ENOUGH_LOOKS = 4


def moved_ranks(dump: Dump, waits: list[Wait], standings: Mapping[int, Standing]) -> tuple[int, ...]:
    return tuple(rank for rank, had in dump.ranks.items() if _moved(had)) or _moved_unheard(dump, waits, standings)


def _moved(had: RankDump) -> bool:
    first, last = had.first.page, had.last.page
    return bool(first and last and (first.heard != last.heard or _progressed(had)))


def _progressed(had: RankDump) -> bool:
    """Its device has completed something between the looks, or its host has enqueued something."""
    recorded = [look.recorder.progress for look in had.looks if look.recorder is not None]
    return any(progress != recorded[0] for progress in recorded)


def _moved_unheard(dump: Dump, waits: list[Wait], standings: Mapping[int, Standing]) -> tuple[int, ...]:
    """Ranks that nobody has heard of (a job without our worker side, or a script that is still importing).

    A culprit may well loop; who waits for others does not. So of those who wait one that goes on is enough to call
    the job moving; where nobody waits, all have to.
    """
    waiting = {rank for wait in waits for rank in wait.waiting}
    asked = {rank: had for rank, had in dump.ranks.items() if not _heard(had) and (not waiting or rank in waiting)}
    launching = went_on(dump)
    went = tuple(
        rank
        for rank, had in asked.items()
        if had.pid in launching or _goes_on(had) or (waiting and _collects(had, standings[rank]))
    )
    return went if waiting or len(went) == len(dump.ranks) else ()


def _heard(had: RankDump) -> bool:
    return bool(had.last.page and had.last.page.heard)


def _goes_on(had: RankDump) -> bool:
    """Another place, another operation, or work: on a device a wait burns CPU too, so that enough looks at one place
    outweigh it."""
    if elsewhere(had) or _progressed(had):
        return True
    return len(had.looks) < ENOUGH_LOOKS and work_rate(had).cpu > COMPUTES


def _collects(had: RankDump, standing: Standing) -> bool:
    """It sleeps in a collective at each look, and ran in between: it was in several, of a slow job. A wait on a device
    may run, too, and so may a main thread that waits for another one."""
    if standing.doing is not Doing.COLLECTIVE or standing.thread:
        return False
    asleep = all(look.process.syscall == "futex" and not look.process.nccl for look in had.looks)
    return asleep and runs_at_times(had)


def elsewhere(had: RankDump) -> bool:
    places = {main.frames for look in had.looks if (main := had.judged(look)) is not None}
    return len(places) > 1
