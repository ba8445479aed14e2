"""How far the clocks of hosts are apart, from the collectives that their ranks were in together.

No rank leaves a collective before every rank has come to it. So of each one the end here lies after the beginning
there, and the other way round: every collective bounds the offset from both sides, and all of them together leave what
is between the highest lower bound and the lowest upper one. Its middle is the offset, half its width the error. The
bounds hold for certain; an interval that is empty says that something did not belong together, and nothing is judged.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.profile_names import step_of

#: Those in which everybody waits for everybody, as torch names them on the CPU, and NCCL its kernels.
_OP = re.compile(
    r"(?:gloo:|mpi:|ccl:|nccl(?:Dev)?Kernel_)_?(all_?reduce|all_?gather|reduce_?scatter|barrier)", re.ASCII | re.I
)
_GROUP = ("Process Group Name", "Process Group Ranks", "In msg nelems", "dtype", "Input Dims")
#: Times in a trace are true to so much: the profiler reads another clock, and works out the host's from that.
_TRUE_TO_US = 20.0


@dataclass(frozen=True)
class HostClock:
    """`offset_us` is to be added to the times of `host`, and is true to `error_us`; both None where nobody knows."""

    host: str
    offset_us: float | None
    error_us: float | None = None
    because: str = ""


@dataclass
class Collectives:
    """Of one rank's trace: feed it all events. Times in us, on one base for all traces."""

    shift_us: float
    _steps: list[tuple[float, int]] = field(default_factory=list)
    _calls: list[tuple[float, float, Hashable]] = field(default_factory=list)

    def see(self, event: Mapping[str, Any]) -> None:
        name = event.get("name")
        if event.get("ph") != "X" or not isinstance(name, str):
            return
        step = step_of(name)
        op = _OP.match(name) if step is None else None
        if step is None and op is None:
            return
        begun = float(event.get("ts", 0)) + self.shift_us
        ended = begun + float(event.get("dur", 0))
        if step is not None:
            self._steps.append((ended, step))
        elif op is not None and event.get("cat") != "python_function":
            args = event.get("args") or {}
            about = tuple(str(args.get(key, "")) for key in _GROUP)
            self._calls.append((begun, ended, (op.group(1).lower().replace("_", ""), about)))

    def by_step(self) -> dict[int, list[tuple[float, float, Hashable]]]:
        """Step -> its collectives (begin, end, which), in the order of their beginning."""
        steps = sorted(self._steps)
        found: dict[int, list[tuple[float, float, Hashable]]] = {number: [] for _, number in steps}
        for call in sorted(self._calls, key=lambda call: call[0]):
            at = bisect_left(steps, (call[0], 0))
            if at < len(steps):
                found[steps[at][1]].append(call)
        return found


def host_clock(host: str, first: Collectives, other: Collectives) -> HostClock:
    """What is to be added to the times of `host`, of which `other` is a rank, to have those of `first`."""
    low, high, met = float("-inf"), float("inf"), 0
    there = other.by_step()
    for step, calls in first.by_step().items():
        theirs = there.get(step, [])
        if Counter(which for *_, which in calls) != Counter(which for *_, which in theirs):
            continue
        for which in {which for *_, which in calls}:
            pairs = zip((c for c in calls if c[2] == which), (c for c in theirs if c[2] == which), strict=True)
            for (begun, ended, _), (begun_there, ended_there, _) in pairs:
                low, high, met = max(low, begun - ended_there), min(high, ended - begun_there), met + 1
    if not met:
        return HostClock(host, None, because="no collective of the same step was found in both traces")
    if high - low < -2 * _TRUE_TO_US:
        return HostClock(host, None, because=f"its collectives contradict each other by {low - high:.0f} us")
    return HostClock(host, (low + high) / 2, max((high - low) / 2, 0) + _TRUE_TO_US)


def words(clocks: Iterable[HostClock]) -> str:
    """How true times are to each other, in one sentence."""
    known = list(clocks)
    lost = [clock for clock in known if clock.offset_us is None]
    if lost:
        why = "; ".join(f"{clock.host}: {clock.because}" for clock in lost)
        return f"clock error unknown, each host's own clock was taken ({why})"
    worst = max((clock.error_us or 0 for clock in known), default=0)
    if not worst:
        return "one host, one clock: no error between ranks beyond the profiler's own of some us"
    return f"clock error up to {worst:.0f} us between hosts, from the collectives that they were in together"
