"""Estimate the clock offsets between hosts, from collectives that their ranks were in together.

No rank leaves a collective before every rank has come to it. So of each one the end here lies after the beginning
there, and the other way round: every collective bounds the offset from both sides, and all of them together leave what
is between the highest lower bound and the lowest upper one. Its middle is the offset, half its width the error. An
interval that is empty says that something did not belong together, and nothing is judged.

The bounds hold as long as both sides speak of the same collective. NCCL's number in its group tells, which newer
versions of torch write; else it is of the step in which the host called it, and within that in its order. When its
kernel ran says nothing: a host that waits for no value is steps ahead of its GPU, and its neighbour is not.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distdbg.evidence.jsonl import inner, integer, number, text
from distdbg.evidence.trace.marks import step_of

#: Those in which everybody waits for everybody, as torch names them on the CPU, and NCCL its kernels.
_OP = re.compile(
    r"(?:gloo:|mpi:|ccl:|nccl(?:Dev)?Kernel_)_?(all_?reduce|all_?gather|reduce_?scatter|barrier)", re.ASCII | re.I
)
_GROUP_NAME = "Process Group Name"
_GROUP = (_GROUP_NAME, "Process Group Ranks", "In msg nelems", "dtype", "Input Dims")
#: Of a collective in its group, alike on all ranks of it; torch's own -1 is none.
_NUMBER = "Seq"
#: The host's calls that begin something on a GPU.
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_MOST_CORRELATION = 1 << 63
#: Times in a trace are true to so much: the profiler reads another clock, and works out the host's from that.
_TRUE_TO_US = 20.0


@dataclass(frozen=True)
class HostClock:
    """Add `offset_us` to the times of `host`; its error is at most `error_us`. Both are None where they are not
    known."""

    host: str
    offset_us: float | None
    error_us: float | None = None
    because: str = ""


class TimedCollective(NamedTuple):
    """A collective. `launched` is the correlation of the host's call, None where `begun` is when the host called it;
    `number` is its own in its group, None where the trace has none."""

    begun: float
    ended: float
    which: Hashable
    launched: int | None = None
    number: int | None = None


@dataclass
class Collectives:
    """Of one rank's trace: feed it all events. Times in us, on one base for all traces."""

    shift_us: float
    _steps: list[tuple[float, int]] = field(default_factory=list)
    _calls: list[TimedCollective] = field(default_factory=list)
    #: of each launch, of which there are millions: its correlation, and when it was
    _correlations: array[int] = field(default_factory=lambda: array("q"))
    _launched: array[float] = field(default_factory=lambda: array("d"))

    def see(self, event: Mapping[str, Any]) -> None:
        name = event.get("name")
        if event.get("ph") != "X" or not isinstance(name, str):
            return
        if text(event, "cat") in _LAUNCHES:
            self._launch(event)
            return
        step = step_of(name)
        op = _OP.match(name) if step is None else None
        if step is None and op is None:
            return
        begun = (number(event, "ts") or 0.0) + self.shift_us
        ended = begun + (number(event, "dur") or 0.0)
        if step is not None:
            self._steps.append((ended, step))
        elif op is not None and event.get("cat") != "python_function":
            args = inner(event, "args")
            about = tuple(str(args.get(key, "")) for key in _GROUP)
            which = op.group(1).lower().replace("_", ""), about
            on_gpu = name.lower().startswith("nccl")
            launched = integer(args, "correlation") or 0 if on_gpu else None
            sequence = integer(args, _NUMBER) if args.get(_GROUP_NAME) else None
            self._calls.append(TimedCollective(begun, ended, which, launched, None if sequence == -1 else sequence))

    def _launch(self, event: Mapping[str, Any]) -> None:
        correlation = integer(inner(event, "args"), "correlation") or 0
        if 0 < correlation < _MOST_CORRELATION:
            self._correlations.append(correlation)
            self._launched.append((number(event, "ts") or 0.0) + self.shift_us)

    def by_place(self) -> dict[Hashable, list[TimedCollective]]:
        """Collectives by a key that is the same on all ranks: the number in its group, or the step of the host's call.
        Those without a key are left out. Each list is in the order of the calls."""
        steps, called = sorted(self._steps), self._called()
        found: dict[Hashable, list[TimedCollective]] = {}
        for at, call in sorted(zip(called, self._calls, strict=True), key=lambda one: (one[0] or 0.0, one[1].begun)):
            if call.number is not None:
                found.setdefault((call.which, call.number), []).append(call)
            elif at is not None and (index := bisect_left(steps, (at, 0))) < len(steps):
                found.setdefault(steps[index][1], []).append(call)
        return found

    @property
    def lost(self) -> int:
        """How many have no number, and nothing in the trace says when the host called them."""
        return sum(at is None and call.number is None for at, call in zip(self._called(), self._calls, strict=True))

    def _called(self) -> list[float | None]:
        """When the host called each of them."""
        wanted = {call.launched for call in self._calls if call.launched is not None}
        pairs = zip(self._correlations, self._launched, strict=True)
        launched = {correlation: at for correlation, at in pairs if correlation in wanted}
        return [call.begun if call.launched is None else launched.get(call.launched) for call in self._calls]


def host_clock(host: str, first: Collectives, other: Collectives) -> HostClock:
    """What to add to the times of `host`, of which `other` is a rank, to get those of `first`."""
    low, high, met = float("-inf"), float("inf"), 0
    there = other.by_place()
    for place, calls in first.by_place().items():
        theirs = there.get(place, [])
        if Counter(call.which for call in calls) != Counter(call.which for call in theirs):
            continue
        for which in {call.which for call in calls}:
            pairs = zip((c for c in calls if c.which == which), (c for c in theirs if c.which == which), strict=True)
            for mine, yours in pairs:
                low, high, met = max(low, mine.begun - yours.ended), min(high, mine.ended - yours.begun), met + 1
    if not met:
        return HostClock(host, None, because=_why_none(first, other))
    if high - low < -2 * _TRUE_TO_US:
        return HostClock(host, None, because=f"its collectives contradict each other by {low - high:.0f} us")
    return HostClock(host, (low + high) / 2, max((high - low) / 2, 0) + _TRUE_TO_US)


def _why_none(first: Collectives, other: Collectives) -> str:
    if lost := first.lost + other.lost:
        return f"of {lost} kernels of NCCL's the traces have no number, and not the call that launched them"
    return "no collective of the same step was found in both traces"


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
