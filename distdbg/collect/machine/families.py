"""Sample a process and all processes below it through /proc: what each is called, and the CPU time that it used.

About 50 us a process and as much a thread of it, so this is for ranks that are quiet.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from distdbg.collect.machine import procfs

_TICK = os.sysconf("SC_CLK_TCK")
#: A loader with more workers than this is judged by some of them.
MOST_PROCESSES = 64
#: The name that torch gives the workers of a DataLoader.
_LOADER_WORKER = "pt_data_worker"


@dataclass(frozen=True)
class Relative:
    """`own_s` are the CPU seconds of the process, `reaped_s` those of the children that it has waited for, `delay_s`
    the seconds that its main thread was ready to run and had no CPU. `loads`: it is a worker of a DataLoader, or below
    one. `exit_code`: of a process that has ended and that nobody has waited for, -N where signal N ended it."""

    pid: int
    parent: int
    name: str
    state: str
    own_s: float
    reaped_s: float
    delay_s: float
    loads: bool = False
    exit_code: int | None = None


def family(pid: int, apart: Collection[int] = ()) -> list[Relative]:
    """The process first; then those below it, nearest first. `apart` are processes, as other ranks, that do not belong
    to it. Empty where the process is gone."""
    found: list[Relative] = []
    todo = [(pid, 0, False)]
    while todo and len(found) < MOST_PROCESSES:
        member, parent, loads = todo.pop(0)
        name, fields = procfs.stat(member)
        if len(fields) <= 14:
            continue
        loads = loads or name.startswith(_LOADER_WORKER)
        ticks = [int(ticks) / _TICK for ticks in fields[11:15]]
        delay, code = _delay(member), _exit_code(fields)
        spent = ticks[0] + ticks[1], ticks[2] + ticks[3]
        found.append(Relative(member, parent, name, fields[0], *spent, delay, loads, code))
        todo += [(child, member, loads) for child in procfs.children(member) if child not in apart]
    return found


def _exit_code(fields: list[str]) -> int | None:
    """The last field of /proc/PID/stat is what waitpid would give; the kernel tells it to who may trace the process."""
    return os.waitstatus_to_exitcode(int(fields[49])) if fields[0] == "Z" and len(fields) > 49 else None


def cpu_of(relatives: list[Relative]) -> float:
    """The CPU seconds of all of them, with those of the children that they have waited for."""
    return sum(one.own_s + one.reaped_s for one in relatives)


def child_s_of(relatives: list[Relative]) -> float:
    """The seconds in which the children of the first ran on a CPU or waited for one; without a loader's workers, which
    may fill their queues for nobody."""
    if not relatives:
        return 0.0
    below = (one.own_s + one.reaped_s + one.delay_s for one in relatives[1:] if not one.loads)
    return relatives[0].reaped_s + sum(below)


def _delay(pid: int) -> float:
    """The second field of /proc/PID/schedstat, in nanoseconds; 0 where the kernel keeps none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0
