"""Names of the marks that the worker side puts into the trace of a profiled rank, and that readers divide it by.

Each is a complete event ("X") of category `user_annotation`, on a track (`tid`) of their own, for they cross torch's
own ranges; `args.thread` is the tid of the training thread, whose time they cut. A phase lasts until the next
event: backward until the optimizer begins, forward until DDP says that it is done or the backward begins. Steps are
those of the optimizer, counted from 1; step N ends where the N-th step of the optimizer is done, and begins where the
one before ended; its `args.queued_us` is how long the thread was ready and had no processor. With Python stacks there
is a second track: where the user's code calls into a library, as `distdbg:line` with `args.file` and `args.line`, the
line that calls; what torch does meanwhile lies within.
"""

from __future__ import annotations

from distdbg.plain_text import whole_number

CATEGORY = "user_annotation"
#: tids that no thread has: 1 is init's
TRACK, LINES_TRACK = 1, 2
TRACK_NAME, LINES_TRACK_NAME = "distdbg: steps and phases", "distdbg: lines of the script"
#: key beside `traceEvents`: {"rank", "host", "attempt", "first", "last", "wanted", "stacks", "missing"}
HEADER = "distdbg"
#: of a step's `args`
QUEUED = "queued_us"
#: followed by a space and the number
STEP = "distdbg:step"
#: a batch is waited for
LOADER = "distdbg:loader"
#: the batch is there and no more is known: until the forward of a DDP or FSDP module, the backward, or the next batch
COMPUTING = "distdbg:computing"
FORWARD = "distdbg:forward"
BACKWARD = "distdbg:backward"
OPTIMIZER = "distdbg:optimizer"
SAVING = "distdbg:saving"
LINE = "distdbg:line"


def step_name(number: int) -> str:
    """`distdbg:step 21`."""
    return f"{STEP} {number}"


def step_of(name: str) -> int | None:
    """21 for `distdbg:step 21`, None for any other name."""
    stem, _, number = name.partition(" ")
    return whole_number(number) if stem == STEP else None
