"""Check the GPUs before a job: state, errors, and processes that use them."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distdbg.collect.machine.gpus import Nvml
from distdbg.collect.machine.kernel_log import kernel_messages

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(.*)")


def look() -> dict[str, Any]:
    """gpus: GpuState as a dict, processes with user and command; xids: [bus, number, text] since boot, or why not.

    Without a driver there are no GPUs, and `absent` says so; with a driver that does not answer it is unknown.
    """
    if not _driver():
        return {"gpus": [], "absent": "no NVIDIA driver is loaded", "xids": [], "xids_because": ""}
    with Nvml() as nvml:
        states = nvml.states()
        if nvml.because:
            return {"unknown": nvml.because}
    messages, because = kernel_messages(0.0)
    gpus = [asdict(state) for state in states]
    for gpu in gpus:
        gpu["processes"] = [{**process, **_owner(process["pid"])} for process in gpu["processes"] or ()]
    return {
        "gpus": gpus,
        "absent": "",
        "xids": [list(xid) for xid in xids(text for text, _ in messages)],
        "xids_because": because,
    }


def xids(messages: Iterable[str]) -> Iterable[tuple[str, int, str]]:
    for text in messages:
        if found := _XID.search(text):
            yield found[1], int(found[2]), text[:200]


def _driver() -> bool:
    """The kernel's side, or a library that was put in its place (containers, tests)."""
    if any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0"))):
        return True
    with Nvml() as nvml:
        return not nvml.because


def _owner(pid: int) -> dict[str, str]:
    """Empty where it is another namespace's pid, or has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        uid = folder.stat().st_uid
    except OSError:
        return {"user": "", "command": ""}
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {"user": user, "command": command.split(" ")[0].rpartition("/")[2] or command}
