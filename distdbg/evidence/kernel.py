"""Kernel messages that explain a dead process: who was killed for memory, who crashed where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_KILLED = re.compile(r"(Memory cgroup out of memory|Out of memory)[^\n]*?Killed process (\d{1,9}) \(([^)]*)\)(.*)")
_RSS = re.compile(r"anon-rss:(\d{1,15})kB")


@dataclass(frozen=True)
class MemoryKill:
    """One kill for lack of memory. `cgroup` is True where a control group's limit, not the machine's, ran out."""

    pid: int
    name: str
    cgroup: bool
    rss_bytes: int | None
    text: str


def memory_kills(messages: Iterable[tuple[str, float | None]]) -> list[MemoryKill]:
    """The kernel numbers pids as its own namespace sees them: a container's may differ."""
    kills: list[MemoryKill] = []
    for text, _ in messages:
        if match := _KILLED.search(text[:2000]):
            rss = _RSS.search(match[4])
            size = int(rss[1]) * 1024 if rss else None
            kills.append(MemoryKill(int(match[2]), match[3], match[1].startswith("Memory"), size, text[:500]))
    return kills
