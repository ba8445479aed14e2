"""Kernel messages that explain a dead process: who was killed for memory, who crashed where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_OUT = re.compile(r"Memory cgroup out of memory|Out of memory")
_KILLED = re.compile(r"Killed process (\d{1,9}) \(([^)]*)\)(.*)")
_RSS = re.compile(r"anon-rss:(\d{1,15})kB")


@dataclass(frozen=True)
class MemoryKill:
    """One kill for lack of memory. `cgroup` is True where a control group's limit, not the machine's, ran out."""

    pid: int
    name: str
    cgroup: bool
    rss_bytes: int | None
    text: str
    #: in epoch seconds
    t: float | None = None


def killed_pid(text: str) -> int | None:
    """Of whom the kernel says in this line that it killed it for memory."""
    found = _KILLED.search(text)
    return int(found[1]) if found else None


def memory_kills(messages: Iterable[tuple[str, float | None]]) -> list[MemoryKill]:
    """The kernel numbers pids as its own namespace sees them: a container's may differ.

    Up to Linux 5.0 what ran out stands in a message before, `Out of memory: Kill process … or sacrifice child`, which
    may name the victim's parent.
    """
    kills: list[MemoryKill] = []
    out = ""
    for text, t in messages:
        if said := _OUT.search(text[:2000]):
            out = said[0]
        if out and (match := _KILLED.search(text[:2000])):
            rss = _RSS.search(match[3])
            size = int(rss[1]) * 1024 if rss else None
            kills.append(MemoryKill(int(match[1]), match[2], out.startswith("Memory"), size, text, t))
            out = ""
    return kills
