"""Read the host name, its addresses, and the identity of the machine: two names may be one machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

_RANK_NAMES = ("PET_NODE_RANK", "NODE_RANK", "GROUP_RANK")


def look() -> dict[str, Any]:
    """hostname, addresses it resolves to here (or why not), identity, node ranks from the environment."""
    hostname = socket.gethostname()
    found = {
        "hostname": hostname,
        "identity": f"{hostname} {_read('/proc/sys/kernel/random/boot_id')} {_network()}",
        "ranks": {name: os.environ[name] for name in _RANK_NAMES if os.environ.get(name, "").isdecimal()},
        "allocation": os.environ.get("SLURM_JOB_NODELIST", ""),
    }
    addresses, because = resolve(hostname)
    return found | {"addresses": addresses, "because": because}


def resolve(name: str) -> tuple[list[str], str]:
    """(addresses in the resolver's order, why there are none)."""
    try:
        infos = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [], getattr(error, "strerror", None) or str(error)
    return list(dict.fromkeys(str(info[4][0]) for info in infos)), ""


def _network() -> str:
    """Containers of one machine differ in it."""
    try:
        return str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
