"""List the network interfaces of this host's network namespace, and the variables that choose some.

Asked of the kernel (netdevice(7)); /sys may show another namespace's.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Any

_FLAGS, _MTU, _ADDRESS = 0x8913, 0x8921, 0x8915  # SIOCGIF…
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
_TOLD = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def look() -> dict[str, Any]:
    """interfaces: name, up, loopback, mtu, addresses; told: the variables that name some."""
    return {"interfaces": interfaces(), "told": {name: os.environ[name] for name in _TOLD if os.environ.get(name)}}


def interfaces() -> list[dict[str, Any]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return [_one(asking, name) for _, name in socket.if_nameindex()]


def _one(asking: socket.socket, name: str) -> dict[str, Any]:
    flags = _number(asking, _FLAGS, name, "H") or 0
    return {
        "name": name,
        "up": bool(flags & _UP and flags & _RUNNING),
        "loopback": bool(flags & _LOOPBACK),
        "mtu": _number(asking, _MTU, name, "i"),
        "addresses": [*_version_4(asking, name), *_version_6(name)],
    }


def _ask(asking: socket.socket, what: int, name: str) -> bytes | None:
    try:
        return fcntl.ioctl(asking, what, struct.pack("16s24x", name.encode()[:15]))
    except OSError:
        return None


def _number(asking: socket.socket, what: int, name: str, form: str) -> int | None:
    answer = _ask(asking, what, name)
    return int(struct.unpack_from(form, answer, 16)[0]) if answer else None


def _version_4(asking: socket.socket, name: str) -> list[str]:
    answer = _ask(asking, _ADDRESS, name)
    return [socket.inet_ntoa(answer[20:24])] if answer else []


def _version_6(name: str) -> list[str]:
    try:
        rows = [line.split() for line in Path("/proc/self/net/if_inet6").read_text().splitlines()]
    except OSError:
        return []
    raw = (bytes.fromhex(row[0]) for row in rows if len(row) == 6 and row[5] == name)
    return [socket.inet_ntop(socket.AF_INET6, address) for address in raw]
