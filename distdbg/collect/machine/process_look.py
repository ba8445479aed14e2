"""Sample a process from outside through /proc, without stopping it.

    {"t": …, "state": "S", "wchan": "futex_wait_queue", "cpu_s": 12.3, "threads": 9, "rss": …, "read": …, "written": …,
     "syscall": "read", "target": "fifo /tmp/x", "holders": [], "nccl": true, "groups": 1}

Times are epoch seconds, sizes bytes. `state` is one letter of proc(5). `syscall` is what the main thread waits in, and
`target` what its first argument names: a file, a socket's peer, a child; `holders` are the processes that have locked
the file that it wants to lock. `nccl` says that it has a process group of NCCL: a watchdog of torch's is one of its
threads; or, because nccl2 names no thread, it uses CUDA with NCCL's library and has no group of gloo. `groups` is how
many process groups it has at most, by the threads that torch's older NCCL backend and gloo keep for each. Fields that
cannot be read are left out.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import time
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.collect.machine.nccl_ras import uses_nccl

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
#: System calls that wait, by machine; of the first group the first argument is a file descriptor.
_ON_FILE = {
    "x86_64": {0: "read", 1: "write", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 42: "connect",
               43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 72: "fcntl", 73: "flock",
               74: "fsync", 75: "fdatasync", 288: "accept4"},
    "aarch64": {63: "read", 64: "write", 67: "pread64", 68: "pwrite64", 65: "readv", 66: "writev", 203: "connect",
                202: "accept", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 25: "fcntl",
                32: "flock", 82: "fsync", 83: "fdatasync", 242: "accept4"},
}  # fmt: skip
_OTHER = {
    "x86_64": {7: "poll", 23: "select", 34: "pause", 35: "nanosleep", 61: "wait4", 65: "semop", 128: "rt_sigtimedwait",
               130: "rt_sigsuspend", 202: "futex", 220: "semtimedop", 230: "clock_nanosleep", 232: "epoll_wait",
               247: "waitid", 257: "openat", 219: "restart_syscall",
               270: "pselect6", 271: "ppoll", 281: "epoll_pwait"},
    "aarch64": {73: "ppoll", 72: "pselect6", 101: "nanosleep", 260: "wait4", 193: "semop", 137: "rt_sigtimedwait",
                133: "rt_sigsuspend", 98: "futex", 192: "semtimedop", 115: "clock_nanosleep", 22: "epoll_pwait",
                95: "waitid", 56: "openat"},
}  # fmt: skip
_LOCKS = ("flock", "fcntl")
#: fields of a thread, not of the whole process
OF_THREAD = ("syscall", "target", "holders")
#: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp names its threads so.
_WATCHDOG = "pt_nccl_watchdg"
#: ProcessGroupGloo.cpp, likewise: a group has at least so many (ProcessGroupGloo::Options).
_GLOO, _GLOO_THREADS = "pt_gloo_runloop", 2
#: The file that a context of CUDA keeps open; NVML does not.
_CUDA_DRIVER = "nvidia-uvm"


def look(pid: int) -> dict[str, Any]:
    """See the module. Empty where the process is gone."""
    folder = Path(f"/proc/{pid}")
    fields = procfs.stat_fields(pid)
    if not fields:
        return {}
    seen: dict[str, Any] = {
        "state": fields[0],
        "threads": int(fields[17]),
        "rss": int(fields[21]) * _PAGE_SIZE,
    } | _usage_of(pid, fields)
    with contextlib.suppress(OSError):
        seen["wchan"] = (folder / "wchan").read_text().strip()
    names = procfs.thread_names(pid)
    if _WATCHDOG in names or (_GLOO not in names and _uses_nccl_on_a_device(pid)):
        seen["nccl"] = True
    if groups := names.count(_WATCHDOG) + names.count(_GLOO) // _GLOO_THREADS:
        seen["groups"] = groups
    return seen | waits_in(pid, pid)


def _uses_nccl_on_a_device(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return procfs.has_open(pid, _CUDA_DRIVER) and uses_nccl(pid)
    return False


def usage(pid: int) -> dict[str, Any]:
    """Return `t`, `cpu_s`, `read` and `written` alone; empty if the process is gone."""
    fields = procfs.stat_fields(pid)
    return _usage_of(pid, fields) if fields else {}


def _usage_of(pid: int, fields: list[str]) -> dict[str, Any]:
    used: dict[str, Any] = {"t": time.time(), "cpu_s": (int(fields[11]) + int(fields[12])) / _TICK}
    if (moved := procfs.io_bytes(pid)) is not None:
        used["read"], used["written"] = moved
    return used


def waits_in(pid: int, thread: int) -> dict[str, Any]:
    """`syscall`, `target` and `holders` of a thread; empty where it runs, or cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _system_call(pid, Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split())
    return {}


def _system_call(pid: int, words: list[str]) -> dict[str, Any]:
    if words[0] in ("running", "-1"):
        return {}
    number, machine = int(words[0]), os.uname().machine
    name = _ON_FILE.get(machine, {}).get(number)
    if name is None:
        other = _OTHER.get(machine, {}).get(number)
        return {"syscall": other or f"number {number}"}
    descriptor = int(words[1], 16)
    target = file_behind(pid, descriptor)
    if name in _LOCKS and (holders := lock_holders(pid, descriptor)):
        names = (f"pid {holder} ({procfs.command_name(holder) or 'gone'})" for holder in holders)
        target += f", locked by {', '.join(names)}"
        return {"syscall": name, "target": target, "holders": holders}
    return {"syscall": name, "target": target}


def file_behind(pid: int, descriptor: int) -> str:
    """What a descriptor of another process is, for a person: `fifo /tmp/x`, `socket to 10.0.0.1:80`, `file /data/a`."""
    link = Path(f"/proc/{pid}/fd/{descriptor}")
    name = str(link.readlink())
    if name.startswith("socket:["):
        return f"socket to {_peer_of(pid, name[8:-1])}"
    with contextlib.suppress(OSError):
        mode = link.stat().st_mode
        if stat.S_ISFIFO(mode):
            return "pipe" if name.startswith("pipe:") else f"fifo {name}"
        if stat.S_ISCHR(mode):
            return f"device {name}"
    return f"file {name}"


def _peer_of(pid: int, inode: str) -> str:
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] == inode:
                    return _address(fields[2], family)
    return "a peer on this machine"


def _address(text: str, family: socket.AddressFamily) -> str:
    """/proc/net/tcp has addresses as words of the machine's byte order."""
    host, port = text.split(":")
    words = [int(host[i : i + 8], 16) for i in range(0, len(host), 8)]
    return f"{socket.inet_ntop(family, struct.pack(f'={len(words)}I', *words))}:{int(port, 16)}"


def lock_holders(pid: int, descriptor: int) -> list[int]:
    """The processes that hold the lock on this file that a process waits for, by /proc/locks."""
    status = os.stat(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH116 -- Path.stat would say the same, less clearly
    return [owner for owner in procfs.lock_owners(status, pid) if owner != pid]
