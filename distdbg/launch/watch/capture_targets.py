"""The ranks of a dump that is taken: their processes, and what each of their threads is at.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distdbg.collect.machine.job_processes import ranks_driven_by
from distdbg.collect.machine.procfs import children
from distdbg.collect.machine.worker_server import WorkerServer
from distdbg.evidence.frames import Activity, activity_of
from distdbg.evidence.stacks.threads import judged_thread, read_threads
from distdbg.protocol.dump import CaptureTarget

_MOST_CHILDREN = 16
_WAITS_FOR_CHILDREN = {Activity.LOADER, Activity.CHILD, Activity.SHARED_LOCK}


@dataclass
class Target:
    """One rank: `stem` begins the names of its files in the node's folder, None for a job that is not ours."""

    rank: int
    pid: int
    stem: str | None
    looks: list[dict[str, Any]] = field(default_factory=list)
    threads: list[dict[str, Any]] = field(default_factory=list)
    told_ns: int = 0
    #: of a rank that is not ours: that of torch's debug server, if its script runs it
    server: WorkerServer | None = None
    #: of a rank that is not ours: its recorder's file, or why there is none
    recorder: dict[str, Any] = field(default_factory=dict)
    #: of the last look: (content, name) of its files, by what is in them
    kept: dict[str, tuple[bytes, str]] = field(default_factory=dict)


def targets_of(asked: CaptureTarget) -> list[Target]:
    """One rank; where our rank is the launcher of another job, as `accelerate launch` is, the ranks of that."""
    driven = ranks_driven_by(asked.pid) if asked.stem is not None else ()
    return [Target(one.rank, one.pid, None) for one in driven] or [Target(asked.rank, asked.pid, asked.stem)]


def judged(target: Target) -> int:
    """The number of the thread that says where the rank is, 0 where no stack was taken."""
    found = judged_thread(read_threads(target.threads), target.pid)
    return found.os_id if found is not None else 0


def judged_frames(target: Target) -> list[dict[str, Any]]:
    number = judged(target)
    thread = next((t for t in target.threads if t.get("os_thread_id") == number), None)
    return list(thread.get("frames", ())) if thread else []


def activities(frames: Iterable[dict[str, Any]]) -> set[Activity]:
    return {activity_of(str(f.get("filename") or ""), str(f.get("name") or "")) for f in frames}


def place_of(target: Target) -> tuple[tuple[str, int], ...]:
    """The judged thread's place; two lines of one function are two places."""
    return tuple((str(f.get("filename")), int(f.get("line") or 0)) for f in judged_frames(target))


def awaited_children(target: Target) -> list[int]:
    """Loader workers and their like: only where the judged thread waits for one, since each costs another pause."""
    if _WAITS_FOR_CHILDREN.isdisjoint(activities(judged_frames(target))):
        return []
    own = children(target.pid)
    # From Python 3.14 on workers are the children of a fork server, which is the rank's child.
    return [*own, *(grandchild for child in own for grandchild in children(child))][:_MOST_CHILDREN]
