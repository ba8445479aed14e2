"""Measure how a rank's steps divide over its phases: its heartbeat page is sampled ten times a second.

Samples are counted in windows of some steps each, and the median of the windows is reported: one step that took minutes
(a checkpoint, a compilation) is one window. Counting begins once every rank of the node has made its first steps.
Ranks that send to one another (stages of a pipeline) are not compared: each waits in another phase.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from statistics import median
from typing import TYPE_CHECKING

from distdbg.launch.agent.arrival_delay import behind_first
from distdbg.launch.io.loop import Loop
from distdbg.protocol.page import read_page

if TYPE_CHECKING:
    from distdbg.launch.agent.ranks import RankProcess

_EVERY_S = 0.1
_WARM_STEPS = 3
_WINDOW_STEPS = 5
_WINDOW_LOOKS = 10
#: The newest tell how it goes now.
_MOST_WINDOWS = 60
_NEWEST = 10


class PhaseWindows:
    """One rank's looks."""

    def __init__(self) -> None:
        self._windows: deque[Counter[str]] = deque(maxlen=_MOST_WINDOWS)
        self._open: Counter[str] = Counter()
        self._since = 0

    def count(self, phase: str, step: int) -> None:
        self._open[phase] += 1
        if step - self._since >= _WINDOW_STEPS and self._open.total() >= _WINDOW_LOOKS:
            self._windows.append(self._open)
            self._open, self._since = Counter(), step

    def newest(self, phase: str) -> float | None:
        """The part of its time in `phase` over the newest windows; None before the first is full."""
        windows = list(self._windows)[-_NEWEST:]
        return round(median(w[phase] / w.total() for w in windows), 3) if windows else None

    def told(self) -> dict[str, int]:
        """Empty before the first window is full."""
        if not self._windows:
            return {}
        names = {name for window in self._windows for name in window}
        shares = {name: median(w[name] / w.total() for w in self._windows) for name in sorted(names)}
        return {"windows": len(self._windows)} | {name: round(1000 * share) for name, share in shares.items()}


class PhaseClock:
    """Counts for those that `living` gives, from now on."""

    def __init__(self, loop: Loop, living: Callable[[], Collection[RankProcess]]) -> None:
        self._loop = loop
        self._living = living
        loop.after(_EVERY_S, self._tick)

    def told(self) -> dict[str, dict[str, int]]:
        return {str(rank.rank): told for rank in self._living() if (told := rank.phases.told())}

    def _tick(self) -> None:
        ranks = self._living()
        warm = all((rank.step or 0) >= _WARM_STEPS for rank in ranks)
        came: dict[str, dict[int, tuple[int, int]]] = {"forward": {}, "backward": {}}
        for rank in ranks:
            with contextlib.suppress(OSError):
                forward, backward = _look_at(rank, warm=warm)
                came["forward"][rank.rank], came["backward"][rank.rank] = forward, backward
        if warm and len(ranks) > 1:
            _compare(ranks, came)
        self._loop.after(_EVERY_S, self._tick)


def _compare(ranks: Collection[RankProcess], came: Mapping[str, Mapping[int, tuple[int, int]]]) -> None:
    late = {gate: behind_first(times) for gate, times in came.items()}
    for rank in ranks:
        for gate, behind in late.items():
            if rank.rank in behind:
                rank.lateness.add(gate, behind[rank.rank], time.monotonic())


def _look_at(rank: RankProcess, *, warm: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """How often it has come to a forward and to a backward, and when last."""
    page = read_page(rank.page_path.read_bytes())
    if page is None:
        return (0, 0), (0, 0)
    rank.step_times.look(max(page.step, page.user_step), page.step_ns)
    if page.transfers and page.transfers >= page.step:  # at least one a step: a group's warm-up makes no pipeline
        return (0, 0), (0, 0)
    if warm:
        rank.phases.count(page.phase, rank.step or 0)
    return (page.forwards, page.forward_ns), (page.backwards, page.backward_ns)
