"""Find the ranks that a program below torchrun has started: `accelerate launch`, a driver of Ray, `spawn`.

Only their work counts as life of the job: a launcher's services (Ray's raylet, dashboard and log monitor) use CPU time
and move bytes whether the ranks train or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from distdbg.collect.machine import procfs
from distdbg.collect.machine.job_processes import ranks_driven_by

#: Seconds between two searches below one process: each reads its whole process tree, some 2 ms a process with torch.
_SEARCH_EVERY_S = 5.0


class DrivenRanks:
    """Searches in a thread: a process of torch.multiprocessing is asked for its number, which may take seconds."""

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
