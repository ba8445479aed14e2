"""The thresholds by which memory is judged, of snapshots and over the steps of a run, each with unit and reason.

Shares are fractions of 1. Limits of what is read, kept or printed are where they are applied.
"""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20


class LeastGrowth(NamedTuple):
    """Bytes, and share of the first level: less growth is not reported."""

    bytes: int
    share: float


# -- an out-of-memory error (evidence/memory/oom.py, diagnosis/memory/cuda_oom.py) -------------------------------------

#: share of the device: holes that were usable for the failed request are called fragmentation from here on. In healthy
#: traces 2 % of what torch reserves is holes, from rounding alone: without them the next request would have failed.
FRAGMENTED = 0.05
#: bytes: nor are fewer than two of the segments that torch makes for requests of 1 to 10 MiB. On a small device they
#: are a twentieth, and each is a hole while one tensor uses a part of it
FRAGMENTED_BYTES = 40 * MIB
#: share of the request: with less to spare than this, the sum of many holes is no certain figure
SPARE = 0.25
#: steps that ended after a failed request: the script caught the error. One is too few: what runs out in a backward is
#: tried again with a forward, and that alone looks like a step's end
CAUGHT_AFTER = 2
#: blocks with a stack and no allocation: the trace is not whole. One or two can be older than the recording: the
#: workspace of a library, kept from an earlier one
DROPPED = 3

# -- growth from step to step, of any memory (evidence/memory/growth.py) -----------------------------------------------

#: points of a series, and parts of equal length after its warm-up that are compared: fewer show no trend
FEWEST_POINTS, PARTS = 24, 6
#: share of a series that is its warm-up
WARM_UP = 1 / 3
#: shares of the mean rise of the parts that each rises by at least, and of the first half's rise that the second does
EVEN, GOES_ON = 0.3, 0.7
#: whole epochs after the first, and points of each: fewer show no growth from epoch to epoch
EPOCHS, POINTS_OF_EPOCH = 4, 3
#: shares of the largest rise that each epoch rises by, of the first half's rise that the second half does, and of the
#: rise of the epochs' last points that their lowest points do
ALIKE, AS_MUCH, LOWEST = 0.75, 0.9, 0.5
#: share of the growth by which a point may be off the line: growth began at the first point of the line
ON_THE_LINE = 0.1
#: by how much memory grows at least: of a process, of a child for a remark, of a device in torch's allocator, of a
#: device outside of it
HOST, CHILD = LeastGrowth(24 * MIB, 0.04), LeastGrowth(32 * MIB, 0.1)
DEVICE, UNTRACKED = LeastGrowth(64 * MIB, 0.03), LeastGrowth(128 * MIB, 0.05)
#: share of what is kept, and of itself, by which the memory that a step gives back grows: then steps need more and more
SWELLS, SWELLS_ITSELF = 0.05, 0.25
#: share of the growth that was requested while it grew: with less, an array is filled that was allocated before
REQUESTED = 0.4
#: share of a memory's growth that a container must hold, and the reverse, to be its reason. Shared memory and files
#: belong to no process
HELD = 0.5

# -- a leak in a snapshot (evidence/memory/analysis.py) ----------------------------------------------------------------

#: boundaries of steps after the warm-up: fewer make no trend
LEAK_STEPS = 4
#: bytes over the whole trace, and share of its peak: a smaller leak fills no device within a run
LEAK_BYTES, LEAK_SHARE = 256 << 10, 0.0005
#: rises between boundaries; share of the mean rise that each third rises by; share of the growth that may be given back
LEAK_RISES, LEAK_EVEN, LEAK_GIVEN_BACK = 3, 0.375, 0.25
#: ends of steps that an allocation may see although each step makes it anew: what is loaded ahead stands for several
ANEW = 3
#: what a step needs in passing, by what it keeps: inputs that grow need as much again for their gradients; a copy that
#: is made longer, once its own size
IN_PASSING = 1.5

# -- fragmentation without an error (diagnosis/memory/fragmentation.py) ------------------------------------------------

#: share of what is reserved, and bytes, in holes at the very peak: less is rounding and caching
HOLES_SHARE, HOLES_BYTES = 0.25, 512 * MIB
#: steps: fewer show no trend of reserved memory
RESERVED_STEPS = 6
#: share of the first level by which reserved memory rises, and share of that rise by which the highest use may rise:
#: more use explains more reserve
RESERVED_RISE, FLAT = 0.05, 0.25
#: share of a segment: used by less, it is mostly a hole
MOSTLY_HOLE = 0.5

# -- a peak that is too high (diagnosis/memory/peak_too_high.py) -------------------------------------------------------

#: share of the peak, and bytes, that would be saved without one line, or that one rank has above the others
SAVED, WORTH_SAVING = 0.2, 64 * MIB
#: share of the line's bytes that is short-lived: activations and workspace
SHORT_LIVED = 0.6
#: share by which a rank's parameters differ where it has another part of the model
SAME_MODEL = 0.05
