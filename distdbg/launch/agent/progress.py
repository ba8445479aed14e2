"""Sample the progress and the work of this node's ranks once a second, for the launcher's detection of stalls.

A rank without change since the last report is left out; every few seconds all are reported. Of a quiet rank the
children are sampled, too: their CPU time, and the bytes that they read and write; and its flight recorder is asked how
many collectives its device has completed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.collect.machine.families import child_s_of, cpu_of, family
from distdbg.collect.machine.recorder import RecorderFailed, completed
from distdbg.launch.agent.ranks import RankProcess
from distdbg.protocol.agent_events import RankSamples
from distdbg.protocol.progress import RankSample

_EVERYTHING_S = 5.0
#: It takes under a millisecond, without the GIL. One that does not answer is not asked again in the same silence.
_RECORDER_WITHIN_S = 0.1


class ProgressSampler:
    """`close_look_s`: how long a rank must be quiet before its children are looked for, which costs about 1 ms; where a
    group's timeout is short, it is looked at in time for that."""

    def __init__(self, close_look_s: float) -> None:
        self._close_look_s = close_look_s
        self._sent: dict[int, RankSample] = {}
        self._all_sent = float("-inf")
        self._silent_recorders: set[int] = set()

    def message(self, ranks: Iterable[RankProcess]) -> dict[str, Any]:
        """The samples of the ranks. Call it right after the ranks were sampled."""
        now = time.monotonic()
        if now - self._all_sent >= _EVERYTHING_S:
            self._all_sent, self._sent = now, {}
        changed, ranks = [], list(ranks)
        pids = {rank.pid for rank in ranks if rank.pid}
        for rank in ranks:
            sample = self._sample(rank, now, pids)
            same = sample._replace(quiet_s=0.0)
            if self._sent.get(rank.rank) != same:
                self._sent[rank.rank] = same
                changed.append(sample.row())
        return RankSamples(ranks=changed).record(time.time())

    def _sample(self, rank: RankProcess, now: float, pids: Collection[int]) -> RankSample:
        page = rank.page
        quiet = now - page.last_event_ns / 1e9 if page else now - rank.started_monotonic
        cpu, moved, completed, child_s = rank.cpu_s or 0.0, None, None, 0.0
        if quiet >= min(self._close_look_s, (rank.timeout_s or math.inf) / 4) and rank.pid:
            relatives = family(rank.pid, apart=pids)
            cpu, child_s = cpu_of(relatives), child_s_of(relatives)
            moved = sum(sum(procfs.io_bytes(one.pid) or ()) for one in relatives)
            completed = self._completed(rank)
        else:
            self._silent_recorders.discard(rank.rank)
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
            completed,
            round(child_s, 2),
        )

    def _completed(self, rank: RankProcess) -> int | None:
        if not rank.spins or rank.rank in self._silent_recorders:
            return None
        try:
            return completed(rank.page_path.with_suffix(".recorder"), _RECORDER_WITHIN_S)
        except RecorderFailed:
            self._silent_recorders.add(rank.rank)
        return None
