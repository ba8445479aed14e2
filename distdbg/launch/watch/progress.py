"""What an agent tells of its ranks once a second, for stall.py: small, since a launcher hears it of every node.

    {"event": "signs", "ranks": [[rank, heard, quiet_s, phase, step, calls, cpu_s, moved, timeout_s, spins], …]}

Ranks that are as they were a moment ago are left out; everything is told again every few seconds. A rank that is
quiet is looked at more closely: its children's CPU time counts, and the bytes that they all move.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from distdbg.launch.agent import processes
from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.watch.stall import Sign
from distdbg.protocol.agent_events import Signs
from distdbg.worker.page import PHASES

_TICK = os.sysconf("SC_CLK_TCK")
_EVERYTHING_S = 5.0
#: A loader with more workers than this is judged by some of them.
_MOST_PROCESSES = 64


class ProgressSampler:
    """`close_look_s`: how long a rank must be quiet before its children are looked for, which costs about 1 ms; where a
    group's timeout is short, it is looked at in time for that."""

    def __init__(self, close_look_s: float) -> None:
        self._close_look_s = close_look_s
        self._sent: dict[int, list[Any]] = {}
        self._all_sent = float("-inf")

    def message(self, ranks: Iterable[RankProcess]) -> dict[str, Any]:
        """To be called right after the ranks were sampled."""
        now = time.monotonic()
        everything = now - self._all_sent >= _EVERYTHING_S
        if everything:
            self._all_sent, self._sent = now, {}
        told = []
        for rank in ranks:
            item = self._item(rank, now)
            same = item[:2] + item[3:]  # but for how long it has been quiet
            if self._sent.get(rank.rank) != same:
                self._sent[rank.rank] = same
                told.append(item)
        return Signs(ranks=told).record(time.time())

    def _item(self, rank: RankProcess, now: float) -> list[Any]:
        page = rank.page
        quiet = now - page.heard_ns / 1e9 if page else now - rank.started_monotonic
        cpu, moved = rank.cpu_s or 0.0, None
        if quiet >= min(self._close_look_s, (rank.timeout_s or math.inf) / 4) and rank.pid:
            cpu, moved = family(rank.pid)
        heard, phase = (page.heard, PHASES.index(page.phase)) if page else (None, 0)
        calls = page.calls if page else 0
        return [rank.rank, heard, round(quiet, 2), phase, rank.step or 0, calls, round(cpu, 2), moved,
                rank.timeout_s, int(rank.spins)]  # fmt: skip


def read_progress(message: Mapping[str, Any]) -> list[Sign]:
    """The reverse of ProgressSampler.message. Raises ValueError, TypeError or IndexError for what is none."""
    return [
        Sign(
            int(rank),
            heard,
            float(quiet),
            PHASES[phase],
            int(step),
            int(calls),
            float(cpu),
            moved,
            timeout,
            bool(spins),
        )
        for rank, heard, quiet, phase, step, calls, cpu, moved, timeout, spins in message["ranks"]
    ]


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
