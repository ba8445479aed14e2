"""What counts as progress and as work of a rank, for the stall detection of a launch and for dumps. Pure.

launch/watch/stall.py samples a job every second; a dump compares its first look with its last.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

# -- work: what a rank does that changes no counter of its heartbeat page -----------------------------------------

#: Share of one CPU. A waiting process wakes up for less: gloo's and NCCL's watchdogs, a loader's queue.
COMPUTES = 0.05
#: Bytes a second through files and pipes. A waiting process writes less: a line of a log now and then.
MOVES_BYTES = 16 << 10
#: All ranks compute where the slowest has this share of the fastest one's CPU time: cores may be fewer than ranks.
ALIKE = 0.25
#: Share of a CPU that a rank's children, but its loader's workers, run on or wait for: a compiler or an unpacker, and
#: not a monitor that wakes up now and then.
CHILD_COMPUTES = 0.5

# -- time without progress ----------------------------------------------------------------------------------------

#: Seconds. `auto` never calls a job hung earlier: an evaluation or a checkpoint takes as long.
LEAST_S = 60.0
#: `auto` waits for so many times the longest silence of the same phases so far.
TIMES_LONGEST = 6.0
#: Seconds before the first steps (imports, compilation, downloads), unless a process group's timeout is shorter.
STARTUP_S = 1200.0
#: Seconds without progress before the first steps in which a rank does nothing, after which the ranks are looked at.
#: Nothing ends.
START_LOOK_S = 60.0
#: Seconds for which work excuses all ranks that may as well be an endless loop: a child process that computes, and
#: before the first step one rank that does.
BUSY_S = 1200.0
#: Share of a process group's timeout after which its ranks are looked at: the rest is for the dump.
FORESIGHT = 0.8
#: A checkpoint, an exit, a sleep of all ranks, or a rank that computes while the others wait gets so many times the
#: time.
PATIENCE = 3.0
#: Events. A rank that cleans up after an error, as after a collective's timeout, counts no more than these.
LAST_EVENTS = 8
#: Seconds without progress after which a dump that a person requested shows a hang: no detector watched before it.
QUIET_S = 10.0
#: Seconds, the same for ranks beside which others make progress: an evaluation on some ranks is no hang.
PARTLY_QUIET_S = 60.0
#: Times that a main thread leaves a CPU between the looks of a dump. One that waits in a futex for a collective does so
#: not once, and the pauses for its stacks are not counted.
SWITCHES = 4


@dataclass(frozen=True, slots=True)
class WorkRate:
    """`cpu` is the share of one CPU, `moved` the bytes a second, `child` the share of one CPU that children but a
    loader's workers ran on or waited for."""

    cpu: float
    moved: float
    child: float = 0.0

    @property
    def works(self) -> bool:
        return self.cpu >= COMPUTES or self.moved >= MOVES_BYTES


class Work(Enum):
    """What a job does though no rank makes progress. A group's timeout runs on while some ranks move bytes."""

    MOVES_BYTES = "bytes"
    COMPUTES = "cpu"
    LOADS = "data"


def work_of(rates: Collection[WorkRate | None], *, loading: bool = False, cpu_counts: bool = True) -> Work | None:
    """`rates` of all ranks, None where one is not known. `loading`: all wait for their DataLoaders.

    `cpu_counts`: CPU time says something about the ranks, since none waits in a loop.
    """
    known = [rate for rate in rates if rate is not None]
    if not known:
        return None
    if any(rate.moved >= MOVES_BYTES for rate in known):
        return Work.MOVES_BYTES
    shares = [rate.cpu for rate in known]
    if loading and max(shares) >= COMPUTES:
        return Work.LOADS
    if cpu_counts and len(known) == len(rates) and min(shares) >= max(COMPUTES, ALIKE * max(shares)):
        return Work.COMPUTES
    return None


def still_counts(before: int, now: int) -> bool:
    """Whether a rank made more progress than a cleanup after an error makes."""
    return now - before > LAST_EVENTS
