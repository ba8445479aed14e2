"""Classify C and C++ stack frames by what they wait for: the part of the table in frames.py for native code.

The names are those of CUDA, HIP, NCCL, gloo, torch and CPython, as py-spy --native, gdb and lldb print them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache


class NativeWait(Enum):
    """What a native function waits for."""

    #: a work of torch.distributed, an operation of gloo or NCCL
    RANKS = "other ranks"
    SEND = "the receiver of a send"
    RECEIVE = "the sender of a receive"
    GROUP_SETUP = "the other ranks of a new communicator"
    #: an abort or a destruction waits for the kernels of the communicator
    GROUP_END = "the kernels of a communicator that is aborted or destroyed"
    #: all that a stream, an event or a device was given before
    DEVICE = "the device"
    #: a copy to or from the device, which waits for its stream
    COPY = "a copy to or from the device"
    #: the driver's own code, which has no names: for the device, or for a lock of the driver
    DRIVER = "the driver"
    #: autograd's thread for a device, which runs the backward pass of a model on a GPU
    BACKWARD = "autograd's thread"
    STORE = "a key of a store"
    LOCK = "a lock"
    GIL = "the GIL"
    #: a process without work waits here, too
    EVENT = "a socket, a pipe or a file"

    @property
    def of_device(self) -> bool:
        """The device has to do something before the function returns."""
        return self in (NativeWait.GROUP_END, NativeWait.DEVICE, NativeWait.COPY, NativeWait.DRIVER)


#: (pattern that is searched in a function's name, what it waits for, how people call it or "" for the function's name);
#: the first row that fits decides
_FUNCTIONS: tuple[tuple[re.Pattern[str], NativeWait, str], ...] = (
    (re.compile(r"SendWork"), NativeWait.SEND, ""),
    (re.compile(r"RecvWork"), NativeWait.RECEIVE, ""),
    (re.compile(r"ncclCommInitRank|commInitRank|ncclTransport\w*Setup|^bootstrap[A-Z]"), NativeWait.GROUP_SETUP, ""),
    (re.compile(r"ncclComm(?:Abort|Destroy|Finalize)|^comm(?:Reclaim|Destroy|Cleanup)"), NativeWait.GROUP_END, ""),
    (re.compile(r"_local_scalar_dense"), NativeWait.COPY, ".item()"),
    (re.compile(r"c10d::(?:Work|Reducer)|gloo::|nccl"), NativeWait.RANKS, ""),
    (re.compile(r"(?:cuda|hip|cu)(?:Stream|Event|Device|Ctx)Sync"), NativeWait.DEVICE, ""),
    (re.compile(r"^(?:cuda|hip|cu)Mem(?:cpy|set|Free)|^(?:cuda|hip)Free"), NativeWait.COPY, ""),
    (re.compile(r"autograd::ReadyQueue::pop"), NativeWait.BACKWARD, ""),
    (re.compile(r"\bc10d::(?:\w+::)*\w*Store\b"), NativeWait.STORE, ""),
    (re.compile(r"take_gil"), NativeWait.GIL, ""),
    (re.compile(r"PyThread_acquire_lock|_PyMutex_Lock|lock_PyThread"), NativeWait.LOCK, ""),
    (re.compile(r"^_*(?:GI_+|libc_)?(?:p?poll|p?select(?:64)?|epoll_p?wait2?)$"), NativeWait.EVENT, ""),
)
#: Drivers and run times of devices, whose own functions are stripped of their names.
_DRIVERS = re.compile(r"^lib(?:cuda|cudart|amdhip64|hsa-runtime64|ze_loader)(?:[-.]|$)")


@lru_cache(maxsize=16384)
def native_wait_of(function: str, library: str = "") -> NativeWait | None:
    """Return what a native function waits for; None if it may do anything."""
    if (row := _row_of(function)) is not None:
        return row[0]
    return NativeWait.DRIVER if _DRIVERS.match(library) else None


def native_call_of(function: str, library: str = "") -> str:
    """Return how people call a native function: `.item()`, `ncclCommAbort`, or its library if it has no name."""
    row = _row_of(function)
    return (row[1] if row is not None else "") or (library if function in ("", "??") else function)


def outermost_wait(frames: Iterable[tuple[str, str]]) -> tuple[NativeWait, str] | None:
    """Return what the outermost function waits for that is known, and its name.

    Args:
        frames: (function, library) of native frames, innermost first.
    """
    waits = [(wait, native_call_of(*frame)) for frame in frames if (wait := native_wait_of(*frame)) is not None]
    named = [item for item in waits if item[0] is not NativeWait.DRIVER]
    return next(iter(reversed(named or waits)), None)


@lru_cache(maxsize=16384)
def _row_of(function: str) -> tuple[NativeWait, str] | None:
    return next(((wait, call) for pattern, wait, call in _FUNCTIONS if pattern.search(function)), None)
