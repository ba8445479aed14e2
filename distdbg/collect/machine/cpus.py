"""Count the CPUs that this process may use, by its affinity and by the quota of its control group.

Files: cpu.max (v2), cpu.cfs_quota_us and cpu.cfs_period_us (v1); kernel's Documentation/admin-guide/cgroup-v2.rst and
Documentation/scheduler/sched-bwc.rst. A quota on any group above counts, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cpus(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> int:
    """At least 1; a quota of 1.5 CPUs counts as 2, because that many threads can run at once."""
    allowed = len(os.sched_getaffinity(0))
    quotas = [math.ceil(quota) for quota in _quotas(root, proc)]
    return max(1, min([allowed, *quotas]))


def _quotas(root: Path, proc: Path) -> Iterator[float]:
    """In CPUs, of this process's group and of those above it."""
    try:
        lines = [line.split(":", 2) for line in proc.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, group in (line for line in lines if len(line) == 3):
        if controllers == "":
            yield from (q for f in _upwards(root, group) if (q := _version_2(f / "cpu.max")) is not None)
        elif "cpu" in controllers.split(","):
            for mount in (root / "cpu", root / "cpu,cpuacct"):
                yield from (q for f in _upwards(mount, group) if (q := _version_1(f)) is not None)


def _upwards(root: Path, group: str) -> Iterator[Path]:
    """Inside a container the group's own folder may not be visible; the root then is what limits it."""
    inside = root / group.strip("/")
    yield from (inside, *inside.parents[: len(inside.parts) - len(root.parts)])


def _version_2(path: Path) -> float | None:
    try:
        quota, period = path.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max 100000" is no number, and no limit
        return None


def _version_1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
