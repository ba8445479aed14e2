"""Read the resource limits that a job inherits; -1 is unlimited."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

_NAMES = {"nofile": "RLIMIT_NOFILE", "memlock": "RLIMIT_MEMLOCK", "nproc": "RLIMIT_NPROC", "core": "RLIMIT_CORE"}
_VERBS = Path("/sys/class/infiniband")


def look() -> dict[str, Any]:
    """limits: name -> [soft, hard], memlock and core in bytes; rdma: devices that need locked memory."""
    try:
        rdma = sorted(path.name for path in _VERBS.iterdir())
    except OSError:
        rdma = []
    limits = {name: list(resource.getrlimit(getattr(resource, number))) for name, number in _NAMES.items()}
    return {"limits": limits, "rdma": rdma, "root": os.geteuid() == 0}
