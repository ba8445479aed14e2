"""Test once whether py-spy can sample a rank here, without stopping the rank: py-spy needs what ptrace needs.

    probe(pid)  ->  {"pyspy": True, "ptrace": False, "because": "…"}

The kernel is asked the same question that attaching would ask (process_vm_readv, at an address where nothing is): it
answers before it reads, and no rank is stopped. The words for a refusal come from Yama, the capabilities and uids.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

from distdbg.collect.machine.pyspy import find_pyspy

_CAP_SYS_PTRACE = 19
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def probe(pid: int) -> dict[str, Any]:
    """`because` is empty where all works; it can be shown to a person."""
    refused = _refusal(pid)
    found = {"pyspy": find_pyspy() is not None, "ptrace": not refused, "because": ""}
    if refused:
        found["because"] = why_refused(refused, _scope(), _capabilities(), same_user=_same_user(pid))
    elif not found["pyspy"]:
        found["because"] = "py-spy is not installed beside distdbg"
    return found


def _refusal(pid: int) -> int:
    """The kernel's errno, 0 where it would let us."""
    try:
        read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return 0  # not to be known here
    here = (ctypes.c_char * 1)()
    ours = _Piece(ctypes.cast(here, ctypes.c_void_p), 1)
    theirs = _Piece(ctypes.c_void_p(8), 1)  # in the first page, where nothing is ever mapped
    if read(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) >= 0:
        return 0
    number = ctypes.get_errno()
    return number if number in (errno.EPERM, errno.EACCES, errno.ENOSYS) else 0


def why_refused(number: int, scope: int | None, capabilities: int, *, same_user: bool) -> str:
    """In the order in which a person can do something about it."""
    reasons = (
        (number == errno.ENOSYS, "this kernel, or the container's seccomp profile, has no process_vm_readv"),
        (not same_user, "the ranks belong to another user"),
        (scope == 3, "Yama forbids ptrace to everybody (kernel.yama.ptrace_scope is 3, until the next boot)"),
        (
            bool(capabilities >> _CAP_SYS_PTRACE & 1),
            "the container's seccomp or AppArmor profile forbids ptrace: run it with --cap-add SYS_PTRACE",
        ),
        (scope == 2, "Yama lets only CAP_SYS_PTRACE trace (kernel.yama.ptrace_scope is 2)"),
        (
            scope == 1,
            "Yama lets a process trace its children alone (kernel.yama.ptrace_scope is 1), and these ranks have not "
            "allowed it: they run without distdbg's worker side",
        ),
        (
            True,
            "the ranks are not dumpable (PR_SET_DUMPABLE, a set-uid interpreter), or the container lacks SYS_PTRACE",
        ),
    )
    return next(words for applies, words in reasons if applies)


def _scope() -> int | None:
    try:
        return int(_YAMA.read_text())
    except (OSError, ValueError):
        return None


def _capabilities() -> int:
    return int(_status("self", "CapEff") or "0", 16)


def _same_user(pid: int) -> bool:
    uids = _status(str(pid), "Uid").split()
    return not uids or uids[0] == str(os.getuid())


def _status(pid: str, name: str) -> str:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")
