"""Measure the memory of this process, in bytes, under the usual names. Nothing here waits for a device.

    RSS, PSS   what the process has in memory; PSS counts shared memory by its share
    ANON       of RSS, what is no file's and not shared: trends are judged by it, for mapped files come and go
    DATA       private writable memory that it has requested, touched or not: an array that is filled later is in it
    SHM        of RSS, shared memory: loaders' batches, /dev/shm
    MA, CA     what torch has allocated on the current GPU, and reserved of it; Max_ is the highest since the start
    NV         what all processes use of that GPU; NV - CA is outside of torch's allocator

The maxima are torch's own and are never reset, since scripts read them.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")


def cuda() -> Any:
    """torch.cuda where the script uses a GPU; else None. We do not begin it."""
    found = getattr(sys.modules.get("torch"), "cuda", None)
    return found if found is not None and found.is_initialized() else None


def own_device() -> AbstractContextManager[None]:
    """Makes the GPU on which torch has reserved most the current one of this thread.

    A thread of ours begins with GPU 0. To call the driver there would create a context on it: half a GiB, for
    each rank of the node, on the device of local rank 0.
    """
    device = cuda()
    if device is None:
        return nullcontext()
    found: AbstractContextManager[None] = device.device(max(range(device.device_count()), key=device.memory_reserved))
    return found


def quick() -> dict[str, int]:
    """RSS, and with a GPU torch's own counts: some 6 us, and 20 more."""
    try:
        resident, shared, data = _statm()
        found = {"RSS": resident, "ANON": resident - shared, "DATA": data}
    except (OSError, ValueError, IndexError):  # no /proc
        found = {}
    device = cuda()
    if device is not None:
        found |= allocator(device)
    return found


def rss() -> int:
    """Raises OSError where there is no /proc."""
    return _statm()[0]


def _statm() -> tuple[int, int, int]:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        words = os.read(descriptor, 256).split()
        return int(words[1]) * _PAGE, int(words[2]) * _PAGE, int(words[5]) * _PAGE
    finally:
        os.close(descriptor)


def allocator(device: Any) -> dict[str, int]:
    """Return what torch counts, in one call for all four: its functions for each would count again."""
    stats = device.memory.memory_stats_as_nested_dict()
    used, held = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return {"MA": used["current"], "Max_MA": used["peak"], "CA": held["current"], "Max_CA": held["peak"]}


def slow() -> dict[str, int]:
    """PSS and SHM: from 0.1 ms on, more with each mapping; and NV, which asks the driver."""
    found: dict[str, int] = {}
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            rolled = dict(line.split(b":", 1) for line in file if b":" in line[:24])
        found["PSS"] = int(rolled[b"Pss"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        pass  # an old kernel, or one without it
    try:
        with open("/proc/self/status", "rb") as file:
            found["SHM"] = next(int(line.split()[1]) << 10 for line in file if line.startswith(b"RssShmem"))
    except (OSError, ValueError, StopIteration):
        pass
    device = cuda()
    if device is not None and hasattr(device, "mem_get_info"):
        free, total = device.mem_get_info()
        found["NV"] = total - free
        found["NV_total"] = total
    return found
