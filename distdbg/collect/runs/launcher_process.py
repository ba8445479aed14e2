"""Describe the process that launches a run, and find out later whether it still exists."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.evidence.launcher import Launcher


def describe_launcher() -> dict[str, Any]:
    """Return what identifies this process for good: a pid is given out again, and may be of another namespace."""
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "start_ticks": procfs.start_ticks(pid)} | _where_pids_count()


def find_launcher(job: Mapping[str, Any]) -> Launcher:
    """Look for the process that job.json describes."""
    described = job.get("launcher")
    if not isinstance(described, dict) or type(described.get("pid")) is not int:
        return Launcher(None, "", alive=None, because="job.json does not say which process launched it")
    pid, host = described["pid"], str(described.get("host"))
    if host != socket.gethostname():
        because = f"it was launched on {host}, which cannot be looked at from here"
        return Launcher(pid, host, alive=None, because=because)
    here = _where_pids_count()
    if any(described.get(name, value) != value for name, value in here.items()):
        because = f"it was launched on {host} before its last boot, or in another container"
        return Launcher(pid, host, alive=None, because=because)
    fields = procfs.stat_fields(pid)
    alive = bool(fields) and fields[0] not in ("Z", "X")
    return Launcher(pid, host, alive=alive and described.get("start_ticks") in (None, int(fields[19])))


def _where_pids_count() -> dict[str, str]:
    """The boot and the namespace in which a pid names a process; without what cannot be read."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        found["boot_id"] = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with contextlib.suppress(OSError):
        found["pid_namespace"] = str(Path("/proc/self/ns/pid").readlink())
    return found
