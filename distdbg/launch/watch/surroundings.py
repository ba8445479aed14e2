"""What one rank waits for on its own node beside itself: its child processes, and a lock file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distdbg.collect.machine.families import family
from distdbg.collect.machine.lock_files import look_at_lock
from distdbg.evidence.frames import Activity, activity_of
from distdbg.launch.watch.capture_targets import activities

_PROGRAMS = {Activity.CHILD, Activity.SHARED_LOCK, Activity.SUBPROCESS, Activity.EXTENSION_BUILD}
_WAITS_FOR_CHILD = {"wait4", "waitid"}
#: a child may be at the other end of the pipe or socket
_MAY_HEAR_OF_CHILD = {"read", "readv", "recvfrom", "recvmsg", "poll", "ppoll", "select", "pselect6", "epoll_wait",
                      "epoll_pwait"}  # fmt: skip


def surroundings(pid: int, frames: list[dict[str, Any]], syscall: str) -> dict[str, Any]:
    """The fields `below` and `lock` of a look (protocol/dump.py), as far as the rank waits for these. `frames` are
    those of its judged thread, as py-spy has them."""
    found: dict[str, Any] = {}
    waits = syscall in _WAITS_FOR_CHILD or not _PROGRAMS.isdisjoint(activities(frames))
    if waits or syscall in _MAY_HEAR_OF_CHILD:
        below = [
            {"pid": one.pid, "parent": one.parent, "name": one.name, "state": one.state,
             "cpu_s": one.own_s, "exit_code": one.exit_code}
            for one in family(pid)[1:]
            if not one.loads and (waits or one.exit_code is not None)
        ]  # fmt: skip
        found |= {"below": below} if waits or below else {}
    if path := _lock_path(frames):
        found["lock"] = look_at_lock(Path(path), but=pid)
    return found


def _lock_path(frames: list[dict[str, Any]]) -> str:
    """torch's FileBaton has it in no variable of its own: its caller, which builds an extension, knows the folder."""
    waits = False
    for frame in frames:
        activity, values = activity_of(*_names(frame)), _values(frame)
        waits = waits or activity is Activity.LOCK_FILE
        if activity is Activity.LOCK_FILE and (path := values.get("lock_filename") or values.get("canonical_path")):
            return path
        if waits and activity is Activity.EXTENSION and (folder := values.get("build_directory")):
            return f"{folder}/lock"
    return ""


def _values(frame: dict[str, Any]) -> dict[str, str]:
    """The variables that are whole strings: py-spy quotes a string, and cuts a long one."""
    found = {}
    for variable in frame.get("locals") or ():
        text = str(variable.get("repr") or "")
        if len(text) > 2 and text[0] == text[-1] == '"' and not text.endswith('..."'):
            found[str(variable.get("name"))] = text[1:-1]
    return found


def _names(frame: dict[str, Any]) -> tuple[str, str]:
    return str(frame.get("filename") or ""), str(frame.get("name") or "")
