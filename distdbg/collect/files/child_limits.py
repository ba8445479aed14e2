"""Absolute limits of the child processes that read foreign files: memory, CPU time, wall time. Standard library only.

No limit grows beyond its constant with the length of a file: whoever writes a file chooses its length. Below that
constant a short file gets less memory than a long one.
"""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

from distdbg.collect.machine.cgroups import free_bytes
from distdbg.evidence.exit_status import how_it_ended
from distdbg.wording import counted

#: Bytes of memory of one reader. The largest legitimate input, a snapshot of 5 million events, takes 2.7 GiB.
MOST_MEMORY = 4 << 30
#: Bytes of memory that any file may take, and bytes for each byte of its content. Snapshots and recorder dumps take 5 a
#: byte; a list of empty lists takes 64.
_ANY_FILE = 1 << 30
_PER_BYTE = 8
#: The share of the machine's free memory that a reader may take: a training job may run beside it.
_SHARE_OF_FREE = 0.75
#: Seconds of CPU time for one file: a snapshot of 5 million events takes 11 s, on a slow machine four times as long.
MOST_CPU_S = 45
#: Seconds on the clock for one file. A file on a slow network file system needs more than its CPU time.
MOST_WALL_S = 60.0
#: Seconds in all for the files of one command that could not be read: a folder full of hostile files would take days.
MOST_LOST_S = 60.0


@dataclass(frozen=True)
class MemoryLimit:
    """`by_machine`: the free memory of the machine or of the control group is less than MOST_MEMORY."""

    size: int
    by_machine: bool

    def for_content(self, length: int) -> int:
        """The bytes of memory that may be taken for a content of `length` bytes, unpacked."""
        return min(self.size, _ANY_FILE + _PER_BYTE * length)

    def exceeded(self, length: int) -> str:
        """Why a file was not read, of which `length` bytes were unpacked."""
        if self.for_content(length) < self.size:
            return (
                f"reading it takes more than {_ANY_FILE >> 30} GiB of memory and {_PER_BYTE} bytes for each of its "
                "bytes: it is broken, or meant to harm"
            )
        if self.by_machine:
            return (
                f"reading it takes more than {self.size >> 20} MiB, which is {_SHARE_OF_FREE:.0%} of the memory that "
                "is free here: read it on a machine with more free memory"
            )
        return f"reading it takes more than {self.size >> 30} GiB of memory: it is broken, or meant to harm"


def memory_limit(free: int | None) -> MemoryLimit:
    """The limit of a reader on a machine that has `free` bytes; None where that is not known."""
    most = MOST_MEMORY if free is None else min(MOST_MEMORY, int(free * _SHARE_OF_FREE))
    return MemoryLimit(most, most < MOST_MEMORY)


def limit_memory() -> MemoryLimit:
    """Limit the memory of this process for good; it writes no core file and no other file."""
    limit = memory_limit(free_bytes())
    for kind, most in (
        (resource.RLIMIT_AS, limit.size + own_bytes()),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    return limit


def limit_memory_of_file(limit: MemoryLimit, length: int, before: int) -> None:
    """Limit the memory that a file of `length` known bytes may take, below `limit`. `before`: own_bytes() before it."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (min(hard, before + limit.for_content(length)), hard))


def limit_cpu(seconds: int = MOST_CPU_S) -> None:
    """Limit this process's CPU time from now on; the kernel ends it with SIGXCPU. An existing hard limit, as on login
    nodes, is kept."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most, hard = int(used.ru_utime + used.ru_stime) + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def why_it_ended(code: int | None, cpu_s: int = MOST_CPU_S) -> str:
    """What the exit status of a reader says about its file; None where it did not end in time."""
    if code is None:
        return f"reading it takes more than {MOST_WALL_S:g} s: it is broken, or meant to harm"
    if code == -signal.SIGXCPU:
        return f"reading it takes more than {cpu_s} s of CPU time: it is broken, or meant to harm"
    return f"reading it ended its reader ({how_it_ended(code)}): it is broken, or meant to harm"


def why_not_started(error: OSError) -> str:
    return f"no process can be started to read it: {error.strerror}"


class LostTime:
    """Stops the reading of further files once the unreadable ones have taken MOST_LOST_S."""

    def __init__(self) -> None:
        self.files = 0
        self._seconds = 0.0

    @property
    def spent(self) -> bool:
        return self._seconds >= MOST_LOST_S

    def add(self, seconds: float) -> None:
        self.files += 1
        self._seconds += seconds

    def __str__(self) -> str:
        before = f"{counted(self.files, 'unreadable file')} before it took {self._seconds:.0f} s"
        return f"it was not read: {before}"


def own_bytes() -> int:
    """The address space of this process, which is limited too."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
