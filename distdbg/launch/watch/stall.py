"""Detect that no rank of a job makes progress, from samples of its ranks once a second. Pure.

    watch = StallWatch(hang="auto", startup="auto")
    watch.add(now, node, samples)     what one node's agent has sampled
    watch.check(now)                  an event, or None

A rank makes progress when a counter of its heartbeat page changes, or when its device completes a collective: a host
may wait for a long queue of them. A job without progress is not hung yet: the time does not count while bytes move,
while all ranks compute, or while all wait for loaders that work; nor, up to `BUSY_S`, while a child process computes,
or any rank before the first step. The limit is the number of seconds that a person gave, or with `auto` a multiple of
the longest silence in the same phases so far, three times as long while every rank is in one sleep. The thresholds
are in diagnosis/timeline/liveness.py.

Times are seconds of the caller's clock. Nodes report ages, so their clocks need not agree.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from distdbg.diagnosis.timeline import liveness
from distdbg.diagnosis.timeline.liveness import Work, WorkRate
from distdbg.protocol.progress import RankSample

#: `auto` trusts a job's pace after so many steps, or calls of torch.distributed where it makes no steps.
_STEPS, _CALLS = 3, 8
#: Seconds over which CPU time and bytes become a rate. A rate is known after half of one.
_WINDOW_S = 2.0
#: Seconds from the suspicion to the alarm, in which every node reports once more.
_LEAD_S = 1.0
#: Seconds without a report after which the watch does not wait for an agent.
_SILENT_S = 10.0
#: Seconds since each rank last worked, up to which all count as busy.
_BUSY_WITHIN_S = 5.0
#: Seconds without a call after which the watch itself was suspended, or a node that did not report. So often in one
#: silence its ranks are excused.
_PAUSE_S = 5.0
_MOST_PAUSES = 3
#: A time that a person gave doubles with each false alarm, so often.
_MOST_DOUBLINGS = 6
#: Dumps before a process group's timeout, in one attempt.
_MOST_FORESEEN = 3

#: RankSample.key
_Key = tuple[int, int | None]
_Rates = dict[_Key, WorkRate | None]
Kind = Literal["suspected", "stalled", "moving-again", "slow", "timeout-near", "went-on", "start-slow", "start-busy"]


@dataclass(frozen=True, slots=True)
class StallEvent:
    """`since` is the last progress, on the watch's clock; `why` says what excuses a wait, or which ranks' timeout
    is near."""

    kind: Kind
    since: float
    quiet_s: float
    limit_s: float
    why: str = ""
    ranks: tuple[int, ...] = ()


class _Mark(NamedTuple):
    t: float
    cpu_s: float
    moved: int
    child_s: float


@dataclass(slots=True)
class _Rank:
    """`marks` are two earlier readings: rates are taken from the older one."""

    sample: RankSample
    node: int
    progress: float
    marks: list[_Mark] = field(default_factory=list)
    foreseen: bool = False
    #: when it last used a CPU or moved bytes, as far as that was sampled
    worked: float = float("-inf")


class StallWatch:
    """One attempt of a job. It knows the ranks that it has samples of; `ended` removes one. `simulated`: the devices
    are simulated."""

    def __init__(
        self, hang: float | Literal["auto"], startup: float | Literal["auto"], *, simulated: bool = False
    ) -> None:
        self._simulated = simulated
        self._hang = hang
        self._startup = startup
        self._ranks: dict[_Key, _Rank] = {}
        self._keys: dict[int, set[_Key]] = defaultdict(set)  # of each rank and those that it has started
        self._nodes: dict[int, float] = {}  # when each was heard
        self._progress: float | None = None  # of any rank
        self._alive_until = float("-inf")  # the last work that is no progress
        self._busy_until = float("-inf")  # the last work that counts up to BUSY_S
        self._anew = float("-inf")  # the end of the last pause
        self._pauses = 0
        self._step = self._calls = 0
        self._shortest: float | None = None
        self._longest: dict[frozenset[str], float] = {}
        self._kind: frozenset[str] = frozenset()
        self._suspected: float | None = None
        self._stalled: float | None = None  # the progress that was the last when it was said
        self._stood_at: dict[_Key, int] = {}  # what had been heard of the ranks that the last alarm was about
        self._slow_said = self._start_said = self._busy_said = False
        self._alarms = self._foreseen = 0
        self._looked = float("-inf")

    # -- what is seen ---------------------------------------------------------------------------------------

    def add(self, now: float, node: int, samples: Iterable[RankSample]) -> None:
        """Ranks of the node that are not among `samples` are as they were."""
        self._after_pause(now, self._nodes.get(node, now))
        self._nodes[node] = now
        samples = list(samples)
        named = {sample.key for sample in samples}
        # A launcher, now that the ranks that it has started are sampled, or they, now that they have ended.
        for number in {key[0] for key in named}:
            self._drop(self._keys[number] - named)
        for sample in samples:
            rank = self._ranks.get(sample.key)
            at = min(now, now - sample.quiet_s)
            if rank is not None and _device_went_on(rank.sample, sample):
                at = now
            self._step, self._calls = max(self._step, sample.step), max(self._calls, sample.calls)
            if sample.timeout_s is not None and (self._shortest is None or sample.timeout_s < self._shortest):
                self._shortest = sample.timeout_s
            if rank is None:
                self._ranks[sample.key] = _Rank(sample, node, at if sample.heard is not None else now)
                self._keys[sample.key[0]].add(sample.key)
                self._moved(max(at, now) if sample.heard is None else at)
                continue
            if _made_progress(rank, sample, at):
                rank.progress, rank.foreseen = max(at, rank.progress), False
                rank.marks.clear()
                self._moved(rank.progress)
            rank.sample = sample

    def ended(self, rank: int) -> None:
        """The rank, and those that it has started."""
        self._drop(set(self._keys[rank]))

    def _drop(self, keys: set[_Key]) -> None:
        for key in keys:
            del self._ranks[key]
            self._keys[key[0]].remove(key)

    def _moved(self, at: float) -> None:
        last, self._progress = self._progress, at if self._progress is None else max(self._progress, at)
        self._pauses = 0
        if last is not None and at - max(last, self._anew) >= 1.0:
            if self._started:
                kind = self._kind
                self._longest[kind] = max(self._longest.get(kind, 0.0), at - last)
            self._slow_said = self._start_said = self._busy_said = False

    def _after_pause(self, now: float, last: float) -> None:
        """While a job is suspended, or a machine sleeps, its ranks owe nothing: all waiting begins anew."""
        if self._pauses >= _MOST_PAUSES or not _PAUSE_S < now - max(last, self._anew) < math.inf:
            return
        self._pauses += 1
        self._anew = self._alive_until = self._busy_until = now
        self._suspected = None
        for rank in self._ranks.values():
            rank.marks.clear()

    # -- what is thought of it ------------------------------------------------------------------------------

    @property
    def _started(self) -> bool:
        if self._hang == "auto":
            return self._step >= _STEPS or self._calls >= _CALLS
        return self._step > 0 or self._calls > 0

    def check(self, now: float) -> StallEvent | None:
        """To be called about ten times a second. Costs next to nothing while ranks are heard, else 1 us a rank."""
        if self._progress is None or not self._ranks or now - self._looked < self._pause:
            return None
        self._after_pause(now, self._looked)
        self._looked = now
        if self._stalled is not None:
            return self._after_stall()
        if self._all_went_on():
            self._stood_at = {}
            return StallEvent("went-on", self._progress, 0.0, 0.0)
        if quiet := now - self._progress >= 1.0:
            self._kind = frozenset(r.sample.phase for r in self._ranks.values())
        else:
            self._suspected = None
        return self._timeout_near(now, quiet=quiet) or (self._quiet(now, self._progress) if quiet else None)

    @property
    def _pause(self) -> float:
        return 0.2 if len(self._ranks) < 1000 else 1.0

    def _quiet(self, now: float, since: float) -> StallEvent | None:
        rates, ready = self._rates(now)
        work = self._work(rates)
        limit = self._limit(rates)
        if work:
            self._alive_until, self._suspected = now, None
            if now - since < limit * liveness.PATIENCE or self._slow_said:
                return self._start_slow(now, since, limit) if ready else None
            self._slow_said = True
            return StallEvent("slow", since, now - since, limit, work.value)
        if self._busy(rates):
            self._busy_until = now
        quiet = now - max(since, self._alive_until)
        if quiet < max(limit, liveness.BUSY_S):
            quiet = now - max(since, self._alive_until, self._busy_until)
        lead = min(_LEAD_S, limit / 3)
        if quiet < limit - lead or not ready:
            self._suspected = None
            return self._start_slow(now, since, limit) if ready else None
        if self._suspected is None:
            self._suspected = now
            return StallEvent("suspected", since, now - since, limit)
        if quiet >= limit and now - self._suspected >= lead * 0.9 and self._all_heard_since(now):
            self._stalled, self._suspected = since, None
            self._stood_at = {key: rank.sample.heard or 0 for key, rank in self._ranks.items()}
            return StallEvent("stalled", since, now - since, limit)
        return None

    def _start_slow(self, now: float, since: float, limit: float) -> StallEvent | None:
        """Once a silence: a rank that has not trained yet does nothing, whatever the others do. Before it, once, where
        all work for as long: they may load or compile, or be in an endless loop."""
        if self._started or self._step or self._start_said or now - since < liveness.START_LOOK_S:
            return None
        idle = now - min(max(rank.progress, rank.worked, self._anew) for rank in self._ranks.values())
        heard = all(rank.sample.heard is not None for rank in self._ranks.values())
        if heard and idle < _BUSY_WITHIN_S and not self._busy_said:
            self._busy_said = True
            return StallEvent("start-busy", since, now - since, limit)
        if idle < liveness.START_LOOK_S:
            return None
        self._start_said = True
        self._stood_at = {key: rank.sample.heard or 0 for key, rank in self._ranks.items()}
        return StallEvent("start-slow", since, now - since, limit)

    def _after_stall(self) -> StallEvent | None:
        if self._progress is None or self._stalled is None or self._progress <= self._stalled:
            return None
        since, self._stalled = self._stalled, None
        self._alarms = min(self._alarms + 1, _MOST_DOUBLINGS)
        return StallEvent("moving-again", since, self._progress - since, 0.0)

    def _all_went_on(self) -> bool:
        """Whoever stood there, so often that it is more than what follows a collective's timeout."""
        return bool(self._stood_at) and all(
            (rank := self._ranks.get(key)) is not None and liveness.still_counts(heard, rank.sample.heard or 0)
            for key, heard in self._stood_at.items()
        )

    def _timeout_near(self, now: float, *, quiet: bool) -> StallEvent | None:
        """A group's timeout that will end a rank which has not moved: once a silence, and not for ever.

        It runs where a rank waits for others, which is not to be seen from outside; but for ranks that all compute, or
        all wait for loaders that work. Bytes that one of them moves do not stop the others' clocks.
        """
        if self._shortest is None or self._foreseen >= _MOST_FORESEEN:
            return None
        late = [
            (key, rank)
            for key, rank in self._ranks.items()
            if (t := rank.sample.timeout_s) is not None
            and now - max(rank.progress, self._anew) >= t * liveness.FORESIGHT
            and not rank.foreseen
        ]
        if not late or (quiet and self._work(self._rates(now)[0]) in (Work.COMPUTES, Work.LOADS)):
            return None
        self._foreseen += 1
        self._stood_at = {key: rank.sample.heard or 0 for key, rank in late}
        for _, rank in late:
            rank.foreseen = True
        since = max(rank.progress for _, rank in late)
        least = min(rank.sample.timeout_s or 0.0 for _, rank in late)
        return StallEvent("timeout-near", since, now - since, least, ranks=tuple(sorted(key[0] for key, _ in late)))

    def _limit(self, rates: _Rates) -> float:
        if not self._started:
            if self._startup != "auto":
                return self._startup
            if self._hang != "auto":
                return self._hang * float(2**self._alarms)
            before_timeout = (self._shortest or math.inf) * liveness.FORESIGHT
            return min(liveness.STARTUP_S, max(liveness.LEAST_S, before_timeout))
        patience = 1.0
        if {"saving", "exiting"} & self._kind:  # an interpreter that ends takes seconds, and others may wait for it
            patience = liveness.PATIENCE
        computing = sum(r is not None and r.cpu >= liveness.COMPUTES for r in rates.values())
        if self._hang == "auto":
            asleep = all(rank.sample.asleep for rank in self._ranks.values())
            if computing or asleep:  # one rank may prepare something for all; a sleep of all ranks waits for nobody
                patience = liveness.PATIENCE
            return max(liveness.LEAST_S, liveness.TIMES_LONGEST * self._longest.get(self._kind, 0.0)) * patience
        if computing == len(rates):  # they spin, else it would be work
            patience = liveness.PATIENCE
        return self._hang * patience * float(2**self._alarms)

    # -- work without progress --------------------------------------------------------------------------------------

    def _rates(self, now: float) -> tuple[_Rates, bool]:
        """Of each rank, None where it is not known yet; and whether all are known."""
        found: _Rates = {}
        ready = True
        for key, rank in self._ranks.items():
            rate = None
            if rank.sample.moved is not None:
                rate = _rate(rank, self._nodes[rank.node], rank.sample.moved)
            if rate is None and now - self._nodes[rank.node] < _SILENT_S:
                ready = False
            if rate is not None and rate.works:
                rank.worked = now
            found[key] = rate
        return found, ready

    def _work(self, rates: _Rates) -> Work | None:
        spins = any(rank.sample.spins for rank in self._ranks.values())
        return liveness.work_of(rates.values(), loading=self._kind == {"data"}, cpu_counts=not spins)

    def _busy(self, rates: _Rates) -> bool:
        """One is enough: a child process that computes, or before the first steps a rank that builds or loads. On
        simulated devices a rank that waits takes no CPU time, so that a rank which computes counts at any time."""
        known = [(rank, rate) for rank, rate in rates.items() if rate is not None]
        if any(rate.child >= liveness.CHILD_COMPUTES for _, rate in known):
            return True
        if self._simulated:
            return any(rate.cpu >= liveness.COMPUTES for _, rate in known)
        if (self._started and (self._step or self._calls >= _CALLS)) or self._startup != "auto":
            return False  # a rank that builds its model may keep others waiting in their first barrier
        return any(rate.cpu >= liveness.COMPUTES and not self._ranks[rank].sample.spins for rank, rate in known)

    def _all_heard_since(self, now: float) -> bool:
        """Every node has been heard of after the suspicion; where none is heard at all, it is we who are late."""
        suspected = self._suspected if self._suspected is not None else now
        late = [t for t in self._nodes.values() if t < suspected]
        return len(late) < len(self._nodes) and all(now - t > _SILENT_S for t in late)


def _made_progress(rank: _Rank, sample: RankSample, at: float) -> bool:
    """The phase `exiting` is no progress: a timeout leads to it, too."""
    if sample.heard is None:
        return False
    return sample.heard != rank.sample.heard or (sample.phase != "exiting" and at > rank.progress + 0.2)


def _device_went_on(before: RankSample, sample: RankSample) -> bool:
    return before.completed is not None and sample.completed is not None and sample.completed > before.completed


def _rate(rank: _Rank, t: float, moved: int) -> WorkRate | None:
    """Since the older mark, None where that is too new. `t` is when the rank was sampled."""
    marks, new = rank.marks, _Mark(t, rank.sample.cpu_s, moved, rank.sample.child_s)
    if not marks:
        marks.append(new)
        return None
    if t - marks[-1].t >= _WINDOW_S:
        marks.append(new)
        del marks[:-2]
    before = marks[0]
    seconds = t - before.t
    if seconds < _WINDOW_S / 2:
        return None
    amounts = (new.cpu_s - before.cpu_s, new.moved - before.moved, new.child_s - before.child_s)
    return WorkRate(*(max(0.0, amount) / seconds for amount in amounts))
