"""Measure, from the heartbeat page of each rank: how long its steps take, which phases they have, how late it is.

All processes of a machine share the clock of these times; ranks of different nodes do not.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Hashable, Mapping
from statistics import median, quantiles
from typing import TYPE_CHECKING, TypeVar

from distdbg.protocol.page import read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distdbg.launch.agent.ranks import RankProcess
    from distdbg.launch.io.loop import Loop

#: The first steps set up, compile and allocate.
WARM_STEPS = 3
#: Of quick steps, those of the last minute.
_MOST_STEPS = 600
_WINDOW_STEPS = 5
_WINDOW_SAMPLES = 10
_MOST_WINDOWS = 60
#: The newest windows say how it goes now.
_NEWEST_WINDOWS = 10
_FEWEST_DELAYS, _MOST_DELAYS = 5, 30
#: A delay that was seen longer ago says nothing of how it goes now.
_OLD_S = 10.0
_Rank = TypeVar("_Rank", bound=Hashable)


class ArrivalDelay:
    """By how much one rank is later than the first of its node: the last one keeps the others waiting.

    Of the ranks that have come to a forward or backward as often as any, each is so much later than the first. One that
    is still missing is not counted until it is there. A rank that only waits inside the forward or the backward (FSDP,
    tensor parallelism) comes to the next one level with the others: the larger delay of the two is reported.
    """

    def __init__(self) -> None:
        self._ns: dict[str, deque[tuple[float, int]]] = {}

    def add(self, gate: str, ns: int, now: float) -> None:
        self._ns.setdefault(gate, deque(maxlen=_MOST_DELAYS)).append((now, ns))

    def newest_ms(self, now: float) -> float | None:
        """The median of the newest looks; None before there are enough, for a rank that is alone on its node, and for
        one that comes there more or less often than the others. `now`: seconds of any clock."""
        newest = [[ns for t, ns in found if now - t <= _OLD_S] for found in self._ns.values()]
        known = [median(found) for found in newest if len(found) >= _FEWEST_DELAYS]
        return round(max(known) / 1e6, 3) if known else None

    def typical_us(self) -> int | None:
        """The median of the looks that are kept, however old they are; None before there are enough."""
        known = [median(ns for _, ns in found) for found in self._ns.values() if len(found) >= _FEWEST_DELAYS]
        return round(max(known) / 1e3) if known else None


def behind_first(came: Mapping[_Rank, tuple[int, int]]) -> dict[_Rank, int]:
    """(how often, when last) by rank becomes ns after the first, of those that came as often as any; none of one."""
    most = max((count for count, _ in came.values()), default=0)
    there = {rank: at for rank, (count, at) in came.items() if count == most}
    if most == 0 or len(there) < 2:
        return {}
    first = min(there.values())
    return {rank: at - first for rank, at in there.items()}


class StepTimer:
    """How long one rank's steps take, after its first ones.

    A step that is longer than the interval of the samples is measured by itself; of shorter ones, the mean of those
    between two samples. In exit.json, and as `step_ms` in metrics.jsonl:

        "step_times": {"windows": 600, "median": 12.1, "low": 11.8, "high": 12.9}    milliseconds; low, high: quartiles
    """

    def __init__(self) -> None:
        self._windows: deque[float] = deque(maxlen=_MOST_STEPS)
        self._last: tuple[int, int] | None = None

    def look(self, step: int, step_ns: int) -> None:
        """`step_ns` is when the step numbered `step` was done, by any clock that goes forward."""
        if step < WARM_STEPS:
            return
        if self._last is not None:
            steps, spent = step - self._last[0], step_ns - self._last[1]
            if steps == 0:
                return
            if steps > 0 and spent > 0:
                self._windows.append(spent / 1e6 / steps)
        self._last = (step, step_ns)

    def figures(self) -> dict[str, float]:
        """Empty before two looks have seen a step between them."""
        if not self._windows:
            return {}
        parts = quantiles(self._windows, n=4, method="inclusive") if len(self._windows) > 1 else [self._windows[0]] * 3
        return {"windows": len(self._windows)} | {
            name: round(part, 4) for name, part in zip(("low", "median", "high"), parts, strict=True)
        }

    def newest(self) -> float | None:
        """The median of the newest windows, in milliseconds."""
        return round(median(list(self._windows)[-_NEWEST_WINDOWS:]), 4) if self._windows else None


class PhaseWindows:
    """One rank's samples, in windows of some steps each. The median of the windows is reported: one step that took
    minutes (a checkpoint, a compilation) is one window."""

    def __init__(self) -> None:
        self._windows: deque[Counter[str]] = deque(maxlen=_MOST_WINDOWS)
        self._open: Counter[str] = Counter()
        self._since = 0

    def count(self, phase: str, step: int) -> None:
        self._open[phase] += 1
        if step - self._since >= _WINDOW_STEPS and self._open.total() >= _WINDOW_SAMPLES:
            self._windows.append(self._open)
            self._open, self._since = Counter(), step

    def newest(self, phase: str) -> float | None:
        """The part of its time in `phase` over the newest windows; None before the first is full."""
        windows = list(self._windows)[-_NEWEST_WINDOWS:]
        return round(median(w[phase] / w.total() for w in windows), 3) if windows else None

    def shares(self) -> dict[str, int]:
        """Empty before the first window is full."""
        if not self._windows:
            return {}
        names = {name for window in self._windows for name in window}
        shares = {name: median(w[name] / w.total() for w in self._windows) for name in sorted(names)}
        return {"windows": len(self._windows)} | {name: round(1000 * share) for name, share in shares.items()}


_SAMPLE_EVERY_S = 0.1


class PhaseClock:
    """Samples the pages of the ranks that `living` gives, once each of them has made its first steps.

    Phases of ranks that send to one another (stages of a pipeline) are not compared: each waits in another phase.
    """

    def __init__(self, loop: Loop, living: Callable[[], Collection[RankProcess]]) -> None:
        self._living = living
        loop.every(_SAMPLE_EVERY_S, self._tick)

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
