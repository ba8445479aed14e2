"""End processes together: no process outlives its run, and no process of others is ever killed.

    launcher (subreaper)  ->  agent (subreaper; PARENT_DIED when the launcher dies)
                          ->  torchrun (SIGTERM when the agent dies)  ->  ranks, each the leader of its own group

An orphan is adopted by the nearest living subreaper above it, which ends it. Killing goes by a rank's own process
group (torchrun makes one a rank and ends it the same way), never by walking a tree of whatever happens to be below.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Set
from pathlib import Path

from distdbg.collect.machine.procfs import children, environment_of, stat_fields, status_value

#: Tells an agent that its parent is gone. Nothing else sends it: SIGTERM could be a person's or a scheduler's, and
#: while the threads of the parent end one by one, it still has its pid.
PARENT_DIED = signal.SIGRTMIN + 5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Orphans below this process become its children, instead of process 1's. Linux; elsewhere nothing happens."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, signum: int = signal.SIGTERM) -> None:
    """This process gets `signum` when `parent`'s starting thread ends; at once, where it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def kill_group(pid: int, signum: int) -> None:
    """Signal the process group that `pid` leads; the process alone where it leads none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(pid, signum)
        except ProcessLookupError:
            os.kill(pid, signum)


def group_members(groups: Set[int], mark: str) -> list[int]:
    """Living processes of these groups whose environment holds `mark` (NAME=VALUE): a number may have a new owner."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = stat_fields(int(entry.name))
        if len(fields) > 2 and int(fields[2]) in groups and fields[0] != "Z":
            name, _, value = mark.partition("=")
            if environment_of(int(entry.name)).get(name) == value:
                found.append(int(entry.name))
    return found


def kill(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler of its own for a signal (it would die of it otherwise)."""
    return bool(int(status_value(pid, "SigCgt") or "0", 16) >> (signum - 1) & 1)


def reap_adopted(known: set[int]) -> list[tuple[int, int]]:
    """Collect ended children that are not in `known` (adopted orphans): (pid, exit code as subprocess has it)."""
    ended: list[tuple[int, int]] = []
    for pid in children(os.getpid()):
        if pid in known:
            continue
        with contextlib.suppress(ChildProcessError):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ended.append((done, os.waitstatus_to_exitcode(status)))
    return ended
