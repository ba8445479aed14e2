"""Names of the marks that a profiled rank puts into its trace: the worker side writes them, readers cut by them.

Each is a complete event ("X") of category `user_annotation`, in the training thread's time. A phase lasts until
whatever is heard next: backward until the optimizer begins, forward until DDP says that it is done or the backward
begins. Steps are those of the optimizer, counted from 1; step N ends where the N-th step of the optimizer is done, and
begins where the one before ended.
"""

from __future__ import annotations

CATEGORY = "user_annotation"
PREFIX = "distdbg:"
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
PHASES = (LOADER, COMPUTING, FORWARD, BACKWARD, OPTIMIZER, SAVING)


def step_name(number: int) -> str:
    """`distdbg:step 21`."""
    return f"{STEP} {number}"


def step_of(name: str) -> int | None:
    """21 for `distdbg:step 21`, None for any other name."""
    stem, _, number = name.partition(" ")
    return int(number) if stem == STEP and number.isdecimal() else None
