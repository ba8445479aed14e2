"""Does a job still get on? A watch over what is seen of its ranks from outside, once a second. Pure.

    watch = StallWatch(hang="auto", startup="auto")
    watch.take(now, node, signs)       what one node's agent has seen
    watch.judge(now)                   a Word where there is something to be said, else None

Progress is whatever a rank is heard to do (worker/page.py). A job in which no rank makes any is not hung yet: while
bytes move, while all ranks compute, or while all wait for loaders that work, the time does not count. What counts
is waited for: a number of seconds that a person gave, or one that the job taught us (`auto`): six times the longest
silence of the same kind so far, where the kind is the set of phases that the ranks stood in; never under a minute.

Times are one clock's, in seconds, and only the caller's: nodes tell ages, so their clocks need not agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

#: `auto` never waits for less, and for so many times the longest silence that was no hang.
LEAST_S = 60.0
_TIMES = 6.0
#: Before the first steps, where no group's timeout ends the wait sooner.
STARTUP_S = 1200.0
#: Of a timeout that will end the job: what is left is for looking.
FORESIGHT = 0.8
#: A checkpoint, an exit, a rank that computes while the others wait: such waits are given more time.
_PATIENCE = 3.0
#: `auto` trusts a job's pace after so many steps, or calls where it makes no steps.
_STEPS, _CALLS = 3, 8
#: What a waiting process does not reach: bytes a second through files and pipes, and share of one CPU.
_MOVING = 16 << 10
_COMPUTING = 0.05
#: All compute alike where the slowest has this much of what the fastest has: cores may be fewer than ranks.
_ALIKE = 0.25
#: Rates are taken over one to two of these, and known after half of one.
_WINDOW_S = 2.0
_LEAD_S = 1.0
#: An agent that was not heard for so long is not waited for.
_SILENT_S = 10.0
#: A watch that was not called for so long stood still, as does a node that was not heard: so often in one silence.
_PAUSE_S = 5.0
_MOST_PAUSES = 3
#: A rank that cleans up after an error is heard no oftener.
LAST_WORDS = 8
_MOST_DOUBLINGS = 6
_MOST_FORESEEN = 3

Said = Literal["suspected", "stalled", "moving-again", "slow", "timeout-near", "went-on"]


@dataclass(frozen=True, slots=True)
class Sign:
    """One rank at one moment. `heard` is None where it has no page; `moved` (bytes) where nobody looked, because it
    is not quiet: only then `cpu_s` holds its children's time, too. `spins`: it waits for its accelerator by spinning,
    so CPU time says nothing."""

    rank: int
    heard: int | None
    quiet_s: float
    phase: str
    step: int = 0
    calls: int = 0
    cpu_s: float = 0.0
    moved: int | None = None
    timeout_s: float | None = None
    spins: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """`since` is the last progress, on the watch's clock; `why` says what excuses a wait, or which ranks' timeout
    is near."""

    said: Said
    since: float
    quiet_s: float
    limit_s: float
    why: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(slots=True)
class _Rank:
    """`marks` are two earlier readings of (time, CPU seconds, bytes): rates are taken from the older one."""

    sign: Sign
    node: int
    progress: float
    marks: list[tuple[float, float, int]] = field(default_factory=list)
    foreseen: bool = False


class StallWatch:
    """One attempt of a job. Ranks are learnt from their signs; `ended` takes one out."""

    def __init__(self, hang: float | Literal["auto"], startup: float | Literal["auto"]) -> None:
        self._hang = hang
        self._startup = startup
        self._ranks: dict[int, _Rank] = {}
        self._nodes: dict[int, float] = {}  # when each was heard
        self._progress: float | None = None  # of any rank
        self._alive_until = float("-inf")  # the last sign of life that is no progress
        self._anew = float("-inf")  # the end of the last pause
        self._pauses = 0
        self._step = self._calls = 0
        self._shortest: float | None = None
        self._longest: dict[frozenset[str], float] = {}
        self._kind: frozenset[str] = frozenset()
        self._suspected: float | None = None
        self._stalled: float | None = None  # the progress that was the last when it was said
        self._stood_at: dict[int, int] = {}  # what had been heard of the ranks that the last alarm was about
        self._slow_said = False
        self._alarms = self._foreseen = 0
        self._looked = float("-inf")

    # -- what is seen ---------------------------------------------------------------------------------------

    def take(self, now: float, node: int, signs: Iterable[Sign]) -> None:
        """Ranks of the node that are not among `signs` are as they were."""
        self._after_pause(now, self._nodes.get(node, now))
        self._nodes[node] = now
        for sign in signs:
            rank = self._ranks.get(sign.rank)
            at = min(now, now - sign.quiet_s)
            self._step, self._calls = max(self._step, sign.step), max(self._calls, sign.calls)
            if sign.timeout_s is not None and (self._shortest is None or sign.timeout_s < self._shortest):
                self._shortest = sign.timeout_s
            if rank is None:
                self._ranks[sign.rank] = _Rank(sign, node, at if sign.heard is not None else now)
                self._moved(max(at, now) if sign.heard is None else at)
                continue
            if _got_on(rank, sign, at):
                rank.progress, rank.foreseen = max(at, rank.progress), False
                rank.marks.clear()
                self._moved(rank.progress)
            rank.sign = sign

    def ended(self, rank: int) -> None:
        self._ranks.pop(rank, None)

    def _moved(self, at: float) -> None:
        last, self._progress = self._progress, at if self._progress is None else max(self._progress, at)
        self._pauses = 0
        if last is not None and at - max(last, self._anew) >= 1.0:
            if self._started:
                kind = self._kind
                self._longest[kind] = max(self._longest.get(kind, 0.0), at - last)
            self._slow_said = False

    def _after_pause(self, now: float, last: float) -> None:
        """While a job is suspended, or a machine sleeps, its ranks owe nothing: all waiting begins anew."""
        if self._pauses >= _MOST_PAUSES or not _PAUSE_S < now - max(last, self._anew) < math.inf:
            return
        self._pauses += 1
        self._anew = self._alive_until = now
        self._suspected = None
        for rank in self._ranks.values():
            rank.marks.clear()

    # -- what is thought of it ------------------------------------------------------------------------------

    @property
    def _started(self) -> bool:
        if self._hang == "auto":
            return self._step >= _STEPS or self._calls >= _CALLS
        return self._step > 0 or self._calls > 0

    def judge(self, now: float) -> Word | None:
        """To be called about ten times a second. Costs next to nothing while ranks are heard, else 1 us a rank."""
        if self._progress is None or not self._ranks or now - self._looked < self._pause:
            return None
        self._after_pause(now, self._looked)
        self._looked = now
        if self._stalled is not None:
            return self._after_stall()
        if self._all_went_on():
            self._stood_at = {}
            return Word("went-on", self._progress, 0.0, 0.0)
        if quiet := now - self._progress >= 1.0:
            self._kind = frozenset(r.sign.phase for r in self._ranks.values())
        else:
            self._suspected = None
        return self._timeout_near(now, quiet=quiet) or (self._quiet(now, self._progress) if quiet else None)

    @property
    def _pause(self) -> float:
        return 0.2 if len(self._ranks) < 1000 else 1.0

    def _quiet(self, now: float, since: float) -> Word | None:
        rates, ready = self._rates(now)
        life = self._life(rates)
        limit = self._limit(rates)
        if life:
            self._alive_until, self._suspected = now, None
            if now - since < limit * _PATIENCE or self._slow_said:
                return None
            self._slow_said = True
            return Word("slow", since, now - since, limit, life)
        quiet = now - max(since, self._alive_until)
        lead = min(_LEAD_S, limit / 3)
        if quiet < limit - lead or not ready:
            self._suspected = None
        elif self._suspected is None:
            self._suspected = now
            return Word("suspected", since, now - since, limit)
        elif quiet >= limit and now - self._suspected >= lead * 0.9 and self._all_heard_since(now):
            self._stalled, self._suspected = since, None
            self._stood_at = {number: rank.sign.heard or 0 for number, rank in self._ranks.items()}
            return Word("stalled", since, now - since, limit)
        return None

    def _after_stall(self) -> Word | None:
        if self._progress is None or self._stalled is None or self._progress <= self._stalled:
            return None
        since, self._stalled = self._stalled, None
        self._alarms = min(self._alarms + 1, _MOST_DOUBLINGS)
        return Word("moving-again", since, self._progress - since, 0.0)

    def _all_went_on(self) -> bool:
        """Whoever stood there, so often that it is more than what follows a collective's timeout."""
        return bool(self._stood_at) and all(
            (rank := self._ranks.get(number)) is not None and (rank.sign.heard or 0) - heard > LAST_WORDS
            for number, heard in self._stood_at.items()
        )

    def _timeout_near(self, now: float, *, quiet: bool) -> Word | None:
        """A group's timeout that will end a rank which has not moved: once a silence, and not for ever.

        It runs where a rank waits for others, which is not to be seen from outside; but for ranks that all compute, or
        all wait for loaders that work. Bytes that one of them moves do not stop the others' clocks.
        """
        if self._shortest is None or self._foreseen >= _MOST_FORESEEN:
            return None
        late = [
            (number, rank)
            for number, rank in self._ranks.items()
            if (t := rank.sign.timeout_s) is not None
            and now - max(rank.progress, self._anew) >= t * FORESIGHT
            and not rank.foreseen
        ]
        if not late or (quiet and self._life(self._rates(now)[0]) in ("cpu", "data")):
            return None
        self._foreseen += 1
        self._stood_at = {number: rank.sign.heard or 0 for number, rank in late}
        for _, rank in late:
            rank.foreseen = True
        since = max(rank.progress for _, rank in late)
        least = min(rank.sign.timeout_s or 0.0 for _, rank in late)
        return Word("timeout-near", since, now - since, least, ranks=tuple(sorted(number for number, _ in late)))

    def _limit(self, rates: dict[int, tuple[float, float] | None]) -> float:
        if not self._started:
            if self._startup != "auto":
                return self._startup
            return STARTUP_S if self._shortest is None else min(STARTUP_S, max(LEAST_S, self._shortest * FORESIGHT))
        patience = 1.0
        if "saving" in self._kind or self._kind == {"exiting"}:
            patience = _PATIENCE
        computing = sum(r is not None and r[0] >= _COMPUTING for r in rates.values())
        if self._hang == "auto":
            if computing:  # one rank may prepare something for all
                patience = _PATIENCE
            return max(LEAST_S, _TIMES * self._longest.get(self._kind, 0.0)) * patience
        if computing == len(rates):  # they spin, else it were a sign of life
            patience = _PATIENCE
        return self._hang * patience * float(2**self._alarms)

    # -- signs of life --------------------------------------------------------------------------------------

    def _rates(self, now: float) -> tuple[dict[int, tuple[float, float] | None], bool]:
        """Of each rank (share of a CPU, bytes a second), None where not known yet; and whether all are known."""
        found: dict[int, tuple[float, float] | None] = {}
        ready = True
        for number, rank in self._ranks.items():
            rate = None
            if rank.sign.moved is not None:
                rate = _rate(rank, self._nodes[rank.node], rank.sign.moved)
            if rate is None and now - self._nodes[rank.node] < _SILENT_S:
                ready = False
            found[number] = rate
        return found, ready

    def _life(self, rates: dict[int, tuple[float, float] | None]) -> str:
        """What moves though nothing is heard: `bytes`, `cpu`, `data`; empty for nothing."""
        known = [rate for rate in rates.values() if rate is not None]
        if not known:
            return ""
        if any(moved >= _MOVING for _, moved in known):
            return "bytes"
        shares = [share for share, _ in known]
        if self._kind == {"data"} and max(shares) >= _COMPUTING:
            return "data"
        spin = any(rank.sign.spins for rank in self._ranks.values())
        if not spin and len(known) == len(rates) and min(shares) >= max(_COMPUTING, _ALIKE * max(shares)):
            return "cpu"
        return ""

    def _all_heard_since(self, now: float) -> bool:
        """Every node has been heard of after the suspicion; where none is heard at all, it is we who are late."""
        suspected = self._suspected if self._suspected is not None else now
        late = [t for t in self._nodes.values() if t < suspected]
        return len(late) < len(self._nodes) and all(now - t > _SILENT_S for t in late)


def _got_on(rank: _Rank, sign: Sign, at: float) -> bool:
    """Heard of anew. To come to one's end, be it by a timeout, is no progress."""
    if sign.heard is None:
        return False
    return sign.heard != rank.sign.heard or (sign.phase != "exiting" and at > rank.progress + 0.2)


def _rate(rank: _Rank, t: float, moved: int) -> tuple[float, float] | None:
    """(share of a CPU, bytes a second) since the older mark, None where it is too fresh. `t` is when it was seen."""
    marks, cpu = rank.marks, rank.sign.cpu_s
    if not marks:
        marks.append((t, cpu, moved))
        return None
    if t - marks[-1][0] >= _WINDOW_S:
        marks.append((t, cpu, moved))
        del marks[:-2]
    before, cpu_before, moved_before = marks[0]
    seconds = t - before
    if seconds < _WINDOW_S / 2:
        return None
    return max(0.0, cpu - cpu_before) / seconds, max(0, moved - moved_before) / seconds
