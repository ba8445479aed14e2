"""Read kernel messages since a time, if this user may: OOM kills, segfaults, NVRM Xid."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

#: Only what explains a dead rank; other messages stay out of the run directory.
_RELEVANT = re.compile(r"oom|Out of memory|Killed process|segfault|general protection|NVRM|Xid|traps:|MCE|I/O error")
_MOST = 200


#: The inode of the pid namespace that the machine starts with (PROC_PID_INIT_INO of include/linux/proc_ns.h).
_FIRST_NAMESPACE = 0xEFFFFFFC


def has_kernels_pids(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether this process is in the pid namespace by which the kernel's messages number processes."""
    try:
        return namespace.stat().st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


def kernel_messages(since: float) -> tuple[list[tuple[str, float]], str]:
    """([(text, epoch seconds)], why unknown or ""). Reads /dev/kmsg without waiting; needs the right to.

    `since` is in seconds since the boot: the clock may be set meanwhile.
    """
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return [], f"/dev/kmsg cannot be read: {error.strerror}"
    offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    found: list[tuple[str, float]] = []
    with contextlib.suppress(BlockingIOError), os.fdopen(descriptor, "rb", buffering=0):
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BrokenPipeError:  # overwritten while we read: the next one is fine
                continue
            except BlockingIOError:
                break
            except OSError as error:
                return found, f"/dev/kmsg: {error.strerror}"
            head, _, text = record.decode("utf-8", "replace").partition(";")
            with contextlib.suppress(ValueError, IndexError):
                when = int(head.split(",")[2]) / 1e6
                # The kernel's clock and ours drift a little: a second of grace.
                if when >= since - 1 and _RELEVANT.search(text):
                    found.append((text.split("\n")[0], when + offset))
    return found[-_MOST:], ""
