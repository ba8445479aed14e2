"""Who dies with whom. Nothing of a run outlives it, and nothing that is not the run's is ever killed.

    launcher (subreaper)  ->  agent (subreaper; SIGTERM when the launcher dies)
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


def children(pid: int) -> list[int]:
    """Living and dead-but-unreaped children of all threads of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process started with; empty where it cannot be read (gone, or another user's)."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid, a name that is never used twice."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from field 3 (state) on, so that index i is field i + 3 of proc(5); empty where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def is_stopped(pid: int) -> bool:
    """By SIGSTOP, Ctrl-Z or the batch system."""
    return stat_fields(pid)[:1] == ["T"]


def anonymous_bytes(pid: int) -> int | None:
    """What of a process's memory is no file's and not shared; None where it is gone."""
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(words[1]) - int(words[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


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
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


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
