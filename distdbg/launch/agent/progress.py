"""Sample the progress and the work of this node's ranks once a second, for the launcher's detection of stalls.

A rank without change since the last report is left out; every few seconds all are reported. Of a quiet rank the
children are sampled, too: their CPU time, and the bytes that they read and write.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.io import processes
from distdbg.protocol.agent_events import RankSamples
from distdbg.protocol.progress import RankSample

_TICK = os.sysconf("SC_CLK_TCK")
_EVERYTHING_S = 5.0
#: A loader with more workers than this is judged by some of them.
_MOST_PROCESSES = 64


class ProgressSampler:
    """`close_look_s`: how long a rank must be quiet before its children are looked for, which costs about 1 ms; where a
    group's timeout is short, it is looked at in time for that."""

    def __init__(self, close_look_s: float) -> None:
        self._close_look_s = close_look_s
        self._sent: dict[int, RankSample] = {}
        self._all_sent = float("-inf")

    def message(self, ranks: Iterable[RankProcess]) -> dict[str, Any]:
        """To be called right after the ranks were sampled."""
        now = time.monotonic()
        if now - self._all_sent >= _EVERYTHING_S:
            self._all_sent, self._sent = now, {}
        changed = []
        for rank in ranks:
            sample = self._sample(rank, now)
            same = sample._replace(quiet_s=0.0)
            if self._sent.get(rank.rank) != same:
                self._sent[rank.rank] = same
                changed.append(sample.row())
        return RankSamples(ranks=changed).record(time.time())

    def _sample(self, rank: RankProcess, now: float) -> RankSample:
        page = rank.page
        quiet = now - page.heard_ns / 1e9 if page else now - rank.started_monotonic
        cpu, moved = rank.cpu_s or 0.0, None
        if quiet >= min(self._close_look_s, (rank.timeout_s or math.inf) / 4) and rank.pid:
            cpu, moved = family(rank.pid)
        return RankSample(
            rank.rank,
            page.heard if page else None,
            round(quiet, 2),
            page.phase if page else "starting",
            rank.step or 0,
            page.calls if page else 0,
            round(cpu, 2),
            moved,
            rank.timeout_s,
            rank.spins,
        )


def family(pid: int) -> tuple[float, int]:
    """(CPU seconds, bytes read and written) of a process and all below it, with those that they have waited for."""
    cpu, moved = 0.0, 0
    todo, seen = [pid], 0
    while todo and seen < _MOST_PROCESSES:
        member = todo.pop(0)
        seen += 1
        fields = processes.stat_fields(member)
        if len(fields) > 14:
            cpu += sum(map(int, fields[11:15])) / _TICK
        moved += _bytes(member)
        todo += processes.children(member)
    return cpu, moved


def _bytes(pid: int) -> int:
    """Through calls, and from and to disks: what is read of a mapped file is in the latter alone."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return sum(int(io[name]) for name in ("rchar", "wchar", "read_bytes", "write_bytes"))
    return 0
