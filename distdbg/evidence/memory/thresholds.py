"""The thresholds by which memory snapshots are judged, each with its unit and its reason.

Shares are fractions of 1. Limits of what is read, kept or printed are where they are applied.
"""

from __future__ import annotations

MIB = 1 << 20

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

# -- a leak (evidence/memory/leaks.py) ---------------------------------------------------------------------------------

#: boundaries of steps after the warm-up: fewer make no trend
LEAK_STEPS = 4
#: bytes over the whole trace, and share of its peak: a smaller leak fills no device within a run
LEAK_BYTES, LEAK_SHARE = 256 << 10, 0.0005
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
