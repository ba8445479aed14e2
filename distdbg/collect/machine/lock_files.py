"""Sample a lock file: how old it is, and which processes of this machine hold it.

A file that is locked (flock, fcntl) is held by whom /proc/locks names. One that is a lock by being there, as that of
torch's FileBaton, is held by whoever has it open: its owner keeps it open until it removes it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs

#: Seconds for the descriptors of all processes: 500 processes with 50 each take 50 ms.
_WITHIN_S = 2.0


def look_at_lock(path: Path, *, but: int) -> dict[str, Any]:
    """The fields of protocol/dump.py's LockFile. `but` is the process that waits for it."""
    try:
        status = path.stat()
    except OSError:
        return {"path": str(path), "age_s": None, "holders": []}
    locked_by = [pid for pid in procfs.lock_owners(status) if pid != but]
    holders = locked_by or [pid for pid in _having_open(status) if pid != but]
    named = [f"pid {pid} ({procfs.command_name(pid) or 'gone'})" for pid in holders]
    age_s = max(0.0, time.time() - status.st_mtime)
    return {"path": str(path), "age_s": age_s, "holders": named, "locked_by": locked_by}


def _having_open(wanted: os.stat_result) -> list[int]:
    """Other users' processes cannot be looked into, unless by root."""
    until = time.monotonic() + _WITHIN_S
    processes = (folder for folder in Path("/proc").iterdir() if folder.name.isdecimal())
    return [int(folder.name) for folder in processes if time.monotonic() < until and _has_open(folder / "fd", wanted)]


def _has_open(folder: Path, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for descriptor in folder.iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
