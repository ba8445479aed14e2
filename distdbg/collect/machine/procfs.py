"""Read what /proc says about a process. A process that is gone, or another user's, gives an empty value."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
_POLL_INTERVAL_S = 0.005
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def stat(pid: int) -> tuple[str, list[str]]:
    """(command name, /proc/PID/stat from field 3 (state) on, so that index i is field i + 3 of proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", []
    head, _, fields = text.rpartition(")")
    return head.partition("(")[2], fields.split()


def stat_fields(pid: int) -> list[str]:
    """The fields of `stat` alone."""
    return stat(pid)[1]


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid, a name that is never used twice."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def started_at(pid: int) -> float | None:
    """When a process started, in epoch seconds by today's clock; None where it is gone."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped, by SIGSTOP, Ctrl-Z or the batch system."""
    return stat_fields(pid)[:1] == ["T"]


def leads_process_group(pid: int) -> bool:
    """Whether the process is the leader of its process group."""
    return stat_fields(pid)[2:3] == [str(pid)]


def children(pid: int) -> list[int]:
    """Living and dead-but-unreaped children of all threads of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def read_environment(pid: int) -> dict[str, str]:
    """The environment that a process started with. Raises OSError where it cannot be read."""
    raw = Path(f"/proc/{pid}/environ").read_bytes()
    pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


def environment_of(pid: int) -> dict[str, str]:
    try:
        return read_environment(pid)
    except OSError:
        return {}


def command_name(pid: int) -> str:
    """The command name as `ps` shows it: a loader's worker has the name pt_data_worker."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def thread_names(pid: int) -> list[str]:
    """The name of each thread of a process: torch names those of its process groups."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found.append((thread / "comm").read_text(encoding="utf-8", errors="replace").strip())
    return found


def has_open(pid: int, name: str) -> bool:
    """Return whether the process has a file of this name open, in any folder."""
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.readlink().name == name:
                    return True
    return False


def anonymous_bytes(pid: int) -> int | None:
    """What of a process's memory is no file's and not shared."""
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(words[1]) - int(words[2])) * _PAGE_SIZE
    except (OSError, ValueError, IndexError):
        return None


def io_bytes(pid: int) -> tuple[int, int] | None:
    """(read, written): bytes that went through calls, and those from and to disks; what is read of a mapped file is in
    the latter alone. None, too, where a sandbox's kernel has other counters."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        counts = {name: int(count) for name, count in (line.split(": ") for line in lines)}
        return counts["rchar"] + counts["read_bytes"], counts["wchar"] + counts["write_bytes"]
    return None


def lock_owners(file: os.stat_result, waiting: int | None = None) -> list[int]:
    """The processes that hold a lock (flock, fcntl) on a file, by /proc/locks. With `waiting`, a process, only that
    which it waits for, as far as the kernel says so: a file may have locks on several ranges."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    owners: dict[str, int] = {}  # by the lock's number, which those that wait for it have, too
    awaited: set[str] = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if place not in fields:
                continue
            process = int(fields[fields.index(place) - 1])
            if "->" not in fields:
                owners[fields[0]] = process
            elif process == waiting:
                awaited.add(fields[0])
    return [owner for number, owner in owners.items() if not awaited or number in awaited]


def switches(pid: int, thread: int) -> int | None:
    """How often a thread of a process has left a CPU so far, because it waited or because others were due. None where
    that cannot be read."""
    counts = [status_value(f"{pid}/task/{thread}", name) for name in _SWITCHES]
    return sum(map(int, counts)) if all(count.isdecimal() for count in counts) else None


def settled_switches(pid: int, thread: int, until: float) -> int | None:
    """Wait until a thread that was paused has run again and sleeps, then return its `switches`.

    Its way back into a wait counts as a switch, too. None if it does not sleep until `until` (time.monotonic).
    """
    while not _sleeps(pid, thread):
        if time.monotonic() >= until:
            return None
        time.sleep(_POLL_INTERVAL_S)
    return switches(pid, thread)


def _sleeps(pid: int, thread: int) -> bool:
    """Whether it has left its CPU. On its way into a wait it has the state of one that waits, and may have to give way
    to others before it has left: only /proc/PID/syscall says that it still runs (kernel/sched/core.c,
    wait_task_inactive)."""
    if status_value(f"{pid}/task/{thread}", "State")[:1] not in ("S", "D"):
        return False
    with contextlib.suppress(OSError):
        return not Path(f"/proc/{pid}/task/{thread}/syscall").read_text().startswith("running")
    return True


def status_value(pid: int | str, name: str) -> str:
    """One line of /proc/PID/status, by its name. A process may have any bytes as its own name there."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")
