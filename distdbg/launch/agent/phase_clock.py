"""Sample the heartbeat pages of a node's ranks ten times a second, for the measurements of timing.py."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from distdbg.launch.agent.timing import WARM_STEPS, behind_first
from distdbg.protocol.page import read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distdbg.launch.agent.ranks import RankProcess
    from distdbg.launch.io.loop import Loop

_EVERY_S = 0.1


class PhaseClock:
    """Samples the pages of the ranks that `living` gives, once each of them has made its first steps.

    Phases of ranks that send to one another (stages of a pipeline) are not compared: each waits in another phase.
    """

    def __init__(self, loop: Loop, living: Callable[[], Collection[RankProcess]]) -> None:
        self._living = living
        loop.every(_EVERY_S, self._tick)

    def shares(self) -> dict[str, dict[str, int]]:
        return {str(rank.rank): shares for rank in self._living() if (shares := rank.phase_shares())}

    def _tick(self) -> None:
        ranks = self._living()
        warm = all((rank.step or 0) >= WARM_STEPS for rank in ranks)
        came: dict[str, dict[int, tuple[int, int]]] = {"forward": {}, "backward": {}}
        for rank in ranks:
            with contextlib.suppress(OSError):
                forward, backward = _look_at(rank, warm=warm)
                came["forward"][rank.rank], came["backward"][rank.rank] = forward, backward
        if warm and len(ranks) > 1:
            for gate, times in came.items():
                behind = behind_first(times)
                for rank in ranks:
                    if rank.rank in behind:
                        rank.arrival_delay.add(gate, behind[rank.rank], time.monotonic())


def _look_at(rank: RankProcess, *, warm: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """How often it has begun a forward and a backward, and when last."""
    page = read_page(rank.page_path.read_bytes())
    if page is None:
        return (0, 0), (0, 0)
    rank.step_times.look(max(page.step, page.user_step), page.step_ns)
    if page.transfers and page.transfers >= page.step:  # at least one a step: a group's warm-up makes no pipeline
        return (0, 0), (0, 0)
    if warm:
        rank.phases.count(page.phase, rank.step or 0)
    return (page.forwards, page.forward_ns), (page.backwards, page.backward_ns)
