"""Read this process's limits of memory and CPUs from its control groups (v1 and v2), and the OOM kills there.

Files: memory.events, memory.max, memory.current, cpu.max (v2, kernel's Documentation/admin-guide/cgroup-v2.rst);
memory.oom_control, memory.limit_in_bytes, memory.usage_in_bytes, cpu.cfs_quota_us, cpu.cfs_period_us (v1,
Documentation/scheduler/sched-bwc.rst). A limit on any group above counts, too.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_NO_LIMIT = 1 << 60  # v1 writes "no limit" as the largest page-aligned number


def memory_counters(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> dict[str, Any]:
    """{"oom_kill": count, "limit": bytes, "current": bytes, "reclaimable": bytes, "path": …}, each None if unknown.

    `because` says why. The limit is the smallest of the group's own and of those above it, `current` and `reclaimable`
    are of the group that has it.
    """
    try:
        lines = proc.read_text().splitlines()
    except OSError as error:
        return {"oom_kill": None, "because": f"{proc} cannot be read: {error.strerror}"}
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _version_1(_existing(root / "memory", group))
    for line in lines:
        if line.startswith("0::"):
            return _version_2(_existing(root, line[3:]))
    return {"oom_kill": None, "because": "no memory control group"}


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What the kernel says that programs of this machine can still have."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def free_bytes() -> int | None:
    """What this process can still have: of the machine's memory and of its control group's, the smaller one."""
    counters = memory_counters()
    free = [available_bytes()]
    if counters.get("limit") is not None and counters.get("current") is not None:
        free.append(max(0, counters["limit"] - counters["current"] + (counters.get("reclaimable") or 0)))
    return min((known for known in free if known is not None), default=None)


def _existing(root: Path, group: str) -> list[Path]:
    """The process's group and those above it up to the mount, outermost first: what limits one limits all below it.

    Inside a container the path in /proc/self/cgroup may name a folder that only the host sees.
    """
    words = [word for word in group.split("/") if word]
    if ".." in words or not root.joinpath(*words).is_dir():
        return [root]
    return [root.joinpath(*words[:count]) for count in range(len(words) + 1)]


def _version_2(folders: Sequence[Path]) -> dict[str, Any]:
    folder = folders[-1]
    events = _pairs(folder / "memory.events")
    limit, limited = _smallest(folders, "memory.max")
    return {
        "oom_kill": events.get("oom_kill"),
        **_because(events, folder / "memory.events"),
        "limit": limit,
        "current": _number(limited / "memory.current"),
        "reclaimable": _file_cache(limited, ""),
        "path": str(folder),
    }


def _version_1(folders: Sequence[Path]) -> dict[str, Any]:
    """A group above that is not in sight here has its limit in memory.stat, and its usage nowhere."""
    folder = folders[-1]
    events = _pairs(folder / "memory.oom_control")
    limit, limited = _smallest(folders, "memory.limit_in_bytes")
    above = _pairs(folder / "memory.stat").get("hierarchical_memory_limit", _NO_LIMIT)
    hidden = above < (limit or _NO_LIMIT)
    return {
        "oom_kill": events.get("oom_kill"),
        **_because(events, folder / "memory.oom_control"),
        "limit": above if hidden else limit,
        "current": None if hidden else _number(limited / "memory.usage_in_bytes"),
        "reclaimable": None if hidden else _file_cache(limited, "total_"),
        "path": str(folder),
    }


def _file_cache(folder: Path, prefix: str) -> int | None:
    """Pages of files, which the kernel drops before it kills: a data set that is read again and again is active."""
    memory_stat = _pairs(folder / "memory.stat")
    found = [memory_stat[name] for kind in ("inactive", "active") if (name := f"{prefix}{kind}_file") in memory_stat]
    return sum(found) if found else None


def _smallest(folders: Sequence[Path], name: str) -> tuple[int | None, Path]:
    """The limit that is reached first, and its group; of equal limits the outermost, which has most processes.

    Without a limit the process's own group. Under Slurm the limits belong to the step and the job above it.
    """
    limits = [(limit, folder) for folder in folders if (limit := _number(folder / name) or _NO_LIMIT) < _NO_LIMIT]
    return min(limits, key=lambda found: found[0], default=(None, folders[-1]))


def _because(events: dict[str, int], file: Path) -> dict[str, str]:
    """A container may have no memory group of its own in sight, and an old kernel counts no kills."""
    if "oom_kill" in events:
        return {}
    return {"because": f"{file} has no oom_kill" if events else f"{file} cannot be read"}


def _pairs(path: Path) -> dict[str, int]:
    try:
        items = (line.split() for line in path.read_text().splitlines())
        return {item[0]: int(item[1]) for item in items if len(item) == 2 and item[1].isdecimal()}
    except OSError:
        return {}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def usable_cpus(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> int:
    """At least 1; a quota of 1.5 CPUs counts as 2, because that many threads can run at once."""
    allowed = len(os.sched_getaffinity(0))
    quotas = [math.ceil(quota) for quota in _quotas(root, proc)]
    return max(1, min([allowed, *quotas]))


def _quotas(root: Path, proc: Path) -> Iterator[float]:
    """The CPU quotas, in CPUs, of this process's group and of those above it."""
    try:
        lines = [line.split(":", 2) for line in proc.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, group in (line for line in lines if len(line) == 3):
        if controllers == "":
            for folder in _existing(root, group):
                with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # "max 100000" is no limit
                    quota, period = (folder / "cpu.max").read_text().split()
                    yield int(quota) / int(period)
        elif "cpu" in controllers.split(","):
            for folder in (f for mount in ("cpu", "cpu,cpuacct") for f in _existing(root / mount, group)):
                quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
                if quota_us and period_us:
                    yield quota_us / period_us
