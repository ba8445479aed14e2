"""Sample the progress and the work of this node's ranks once a second, for the launcher's detection of stalls.

A rank without change since the last report is left out; every few seconds all are reported. Of a quiet rank the
children are sampled, too: their CPU time, and the bytes that they read and write; and its flight recorder is asked how
many collectives its device has completed. A quiet launcher is left out: the ranks that it has started are sampled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.collect.machine.families import child_s_of, cpu_of, family
from distdbg.collect.machine.job_processes import ranks_driven_by
from distdbg.collect.machine.process_look import waits_in
from distdbg.collect.machine.recorder import completed
from distdbg.collect.machine.worker_server import RequestFailed
from distdbg.launch.agent.ranks import RankProcess
from distdbg.protocol.agent_events import RankSamples
from distdbg.protocol.dump import SLEEP
from distdbg.protocol.progress import RankSample

_EVERYTHING_S = 5.0
#: It takes under a millisecond, without the GIL. One that does not answer is not asked again in the same silence.
_RECORDER_WITHIN_S = 0.1


#: Seconds between two searches below one process: each reads its whole process tree, some 2 ms a process with torch.
_SEARCH_EVERY_S = 5.0


class DrivenRanks:
    """Finds the ranks that a program below torchrun has started: `accelerate launch`, a driver of Ray, `spawn`.

    Only their work counts as life of the job: a launcher's services (Ray's raylet, dashboard and log monitor) use CPU
    time and move bytes whether the ranks train or not. It searches in a thread: a process of torch.multiprocessing is
    asked for its number, which may take seconds.
    """

    def __init__(self) -> None:
        self._found: dict[int, Mapping[int, int]] = {}
        self._searched = float("-inf")
        self._thread: threading.Thread | None = None

    def below(self, pid: int) -> dict[int, int]:
        """rank -> pid of those that are alive, as the last search found them. It may begin a search, and does not wait
        for it."""
        now = time.monotonic()
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and now - self._searched >= _SEARCH_EVERY_S and procfs.children(pid):
            self._searched = now
            self._thread = threading.Thread(target=self._search, args=(pid,), name="driven-ranks", daemon=True)
            self._thread.start()
        return {rank: own for rank, own in self._found.get(pid, {}).items() if _lives(own)}

    def _search(self, pid: int) -> None:
        found = {one.rank: one.pid for one in ranks_driven_by(pid)}
        if found or not any(map(_lives, self._found.get(pid, {}).values())):
            self._found[pid] = found


def _lives(pid: int) -> bool:
    return procfs.stat_fields(pid)[:1] not in ([], ["Z"], ["X"])


@dataclass(frozen=True, slots=True)
class _Work:
    """Of a process, or of it and its children; `moved` is None where these were not sampled."""

    cpu_s: float
    moved: int | None = None
    child_s: float = 0.0

    @classmethod
    def of_family(cls, pid: int, apart: Collection[int]) -> _Work:
        relatives = family(pid, apart=apart)
        moved = sum(sum(procfs.io_bytes(one.pid) or ()) for one in relatives)
        return cls(round(cpu_of(relatives), 2), moved, round(child_s_of(relatives), 2))


class ProgressSampler:
    """`close_look_s`: how long a rank must be quiet before its children are looked for, which costs about 1 ms; where a
    group's timeout is short, it is looked at in time for that."""

    def __init__(self, close_look_s: float) -> None:
        self._close_look_s = close_look_s
        self._sent: dict[int, list[RankSample]] = {}
        self._driven = DrivenRanks()
        self._switches: dict[int, int | None] = {}
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
            samples = self._samples(rank, now, pids)
            same = [sample._replace(quiet_s=0.0) for sample in samples]
            if self._sent.get(rank.rank) != same:
                self._sent[rank.rank] = same
                changed += [sample.row() for sample in samples]
        return RankSamples(ranks=changed).record(time.time())

    def _samples(self, rank: RankProcess, now: float, pids: Collection[int]) -> list[RankSample]:
        page = rank.page
        quiet = now - page.last_event_ns / 1e9 if page else now - rank.started_monotonic
        closely = quiet >= min(self._close_look_s, (rank.timeout_s or math.inf) / 4)
        if closely and rank.pid and (driven := self._driven.below(rank.pid)):
            return [self._of_driven(rank, number, pid, quiet, driven.values()) for number, pid in driven.items()]
        return [self._sample(rank, quiet, pids, closely=closely)]

    def _of_driven(self, driver: RankProcess, number: int, pid: int, quiet: float, pids: Collection[int]) -> RankSample:
        work = _Work.of_family(pid, pids)
        return RankSample(number, None, round(quiet, 2), "starting", cpu_s=work.cpu_s, moved=work.moved,
                          child_s=work.child_s, driver=driver.rank, asleep=self._asleep(pid))  # fmt: skip

    def _sample(self, rank: RankProcess, quiet: float, pids: Collection[int], *, closely: bool) -> RankSample:
        page = rank.page
        work, completed, asleep = _Work(round(rank.cpu_s or 0.0, 2)), None, False
        if closely and rank.pid:
            work, completed, asleep = _Work.of_family(rank.pid, pids), self._completed(rank), self._asleep(rank.pid)
        else:
            self._silent_recorders.discard(rank.rank)
        return RankSample(
            rank.rank,
            page.heard if page else None,
            round(quiet, 2),
            page.phase if page else "starting",
            rank.step or 0,
            page.calls if page else 0,
            work.cpu_s,
            work.moved,
            rank.timeout_s,
            rank.spins,
            completed,
            work.child_s,
            asleep=asleep,
        )

    def _asleep(self, pid: int) -> bool:
        """A thread that sleeps again and again, as one that polls, leaves its CPU each time."""
        before, self._switches[pid] = self._switches.get(pid), procfs.switches(pid, pid)
        same = before is not None and self._switches[pid] == before
        return same and waits_in(pid, pid).get("syscall") in SLEEP

    def _completed(self, rank: RankProcess) -> int | None:
        if not rank.spins or rank.rank in self._silent_recorders:
            return None
        try:
            return completed(rank.page_path.with_suffix(".recorder"), _RECORDER_WITHIN_S)
        except RequestFailed:
            self._silent_recorders.add(rank.rank)
        return None
