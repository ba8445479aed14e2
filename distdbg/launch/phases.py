"""How a rank's time divides over its phases: its heartbeat page is looked at ten times a second.

A look reads eight bytes of node-local memory, and the rank does nothing for it. Counting begins once every rank of the
node has made its first steps: those compile, allocate and load. The counts stand in exit.json, and before a dump in
the event

    {"event": "phases", "ranks": {"0": {"data": 12, "backward": 301}, …}}
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Collection

from distdbg.launch.loop import Loop
from distdbg.launch.ranks import RankProcess
from distdbg.worker.page import PHASE_OFFSET, PHASES

_EVERY_S = 0.1
_WARM_STEPS = 3
_WORD = struct.Struct("@q")


class PhaseClock:
    """Counts for those that `living` gives, from now on."""

    def __init__(self, loop: Loop, living: Callable[[], Collection[RankProcess]]) -> None:
        self._loop = loop
        self._living = living
        loop.after(_EVERY_S, self._tick)

    def told(self) -> dict[str, dict[str, int]]:
        return {str(rank.rank): dict(rank.phases) for rank in self._living() if rank.phases}

    def _tick(self) -> None:
        ranks = self._living()
        if all((rank.step or 0) >= _WARM_STEPS for rank in ranks):
            for rank in ranks:
                with contextlib.suppress(OSError, struct.error, IndexError):
                    rank.phases[PHASES[_word(rank, PHASE_OFFSET)]] += 1
        self._loop.after(_EVERY_S, self._tick)


def _word(rank: RankProcess, offset: int) -> int:
    descriptor = os.open(rank.page_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(_WORD.unpack(os.pread(descriptor, _WORD.size, offset))[0])
    finally:
        os.close(descriptor)
