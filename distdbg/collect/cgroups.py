"""Memory counters of this process's control group, v1 and v2: did the kernel kill for memory here, and at what limit?

Files: memory.events, memory.max, memory.current (v2, kernel's Documentation/admin-guide/cgroup-v2.rst);
memory.oom_control, memory.limit_in_bytes, memory.usage_in_bytes (v1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NO_LIMIT = 1 << 60  # v1 writes "no limit" as the largest page-aligned number


def memory_counters(root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self/cgroup")) -> dict[str, Any]:
    """{"oom_kill": count, "limit": bytes, "current": bytes, "reclaimable": bytes, "path": …}, each None if unknown.

    `because` says why.
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


def _existing(root: Path, group: str) -> Path:
    """Inside a container the path in /proc/self/cgroup may name a folder that only the host sees."""
    inside = root / group.strip("/")
    return inside if inside.is_dir() else root


def _version_2(folder: Path) -> dict[str, Any]:
    events = _pairs(folder / "memory.events")
    return {
        "oom_kill": events.get("oom_kill"),
        **_because(events, folder / "memory.events"),
        "limit": _number(folder / "memory.max"),
        "current": _number(folder / "memory.current"),
        "reclaimable": _pairs(folder / "memory.stat").get("inactive_file"),
        "path": str(folder),
    }


def _version_1(folder: Path) -> dict[str, Any]:
    limit = _number(folder / "memory.limit_in_bytes")
    events = _pairs(folder / "memory.oom_control")
    return {
        "oom_kill": events.get("oom_kill"),
        **_because(events, folder / "memory.oom_control"),
        "limit": None if limit is None or limit >= _NO_LIMIT else limit,
        "current": _number(folder / "memory.usage_in_bytes"),
        "reclaimable": _pairs(folder / "memory.stat").get("total_inactive_file"),
        "path": str(folder),
    }


def _because(events: dict[str, int], file: Path) -> dict[str, str]:
    """A container may have no memory group of its own in sight, and an old kernel counts no kills."""
    if "oom_kill" in events:
        return {}
    return {"because": f"{file} has no oom_kill" if events else f"{file} cannot be read"}


def _pairs(path: Path) -> dict[str, int]:
    try:
        items = (line.split() for line in path.read_text().splitlines())
        return {item[0]: int(item[1]) for item in items if len(item) == 2 and item[1].isdigit()}
    except OSError:
        return {}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
