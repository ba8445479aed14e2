"""The memory of a rank's children: its loaders' workers, which the kernel may kill before the rank that feeds on them.

Looked at every ten seconds, some 20 us a child and as much a thread of the rank; standing in metrics.jsonl as
`"children": [[pid, bytes that are no file's and not shared, command], …]`, the largest few.
"""

from __future__ import annotations

import time
from pathlib import Path

from distdbg.launch.io import processes

_EVERY_S = 10.0
#: Children of children, too: a fork server stands between.
_MOST_LOOKED_AT = 128
_MOST, _LEAST = 8, 16 << 20


class ChildMemory:
    """One rank's."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._told: list[list[object]] = []

    def told(self, pid: int) -> list[list[object]]:
        """As they were at the last look, which may be this one."""
        now = time.monotonic()
        if now - self._looked >= _EVERY_S:
            self._looked = now
            self._told = _largest(pid)
        return self._told


def _largest(pid: int) -> list[list[object]]:
    todo, found = processes.children(pid), []
    for seen, child in enumerate(todo):
        if seen >= _MOST_LOOKED_AT:
            break
        if (size := processes.anonymous_bytes(child)) is not None and size >= _LEAST:
            found.append((size, child))
        todo += processes.children(child)  # what is appended is looked at in its turn
    return [[child, size, _command(child)] for size, child in sorted(found, reverse=True)[:_MOST]]


def _command(pid: int) -> str:
    """As `ps` shows it: a loader's worker calls itself pt_data_worker. Empty for one that has just gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
