"""Find the ranks that the others wait for, from profiles of the same steps: in which phase, at which line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from distdbg.evidence.trace.profile import OwnLine, RankProfile

#: On a crowded machine any rank is the last of some steps.
_FEWEST_STEPS = 5
_MOST_STEPS = 0.6
_SHARE = 0.2
_LEAST_US = 1000.0
#: A line explains it that has so much of what the rank takes longer.
_MOST_OF_IT = 0.5
#: And that takes so many times longer than there, beyond what its other lines do: a processor that is wanted by others,
#: too, has been seen to make one line of a healthy rank four times slower.
_UNLIKE = 10.0
_NOISE_US = 50.0


@dataclass(frozen=True)
class SlowRanks:
    """`ranks` take `us` longer in each step than any other, most of it in `phase`; `line` where one line explains it.

    `worst` is one of them; `usual_us` is what that phase takes the others.
    """

    ranks: tuple[int, ...]
    worst: RankProfile
    others: tuple[RankProfile, ...]
    us: float
    phase: str
    usual_us: float
    line: OwnLine | None = None
    line_usual_us: float = 0.0


def slow_ranks(profiles: Sequence[RankProfile]) -> SlowRanks | None:
    """The slow ranks. None without any, where the slow rank changes, where the ranks' steps differ, and where no line
    explains the additional time, except for a GPU's own time."""
    by_rank = {p.rank: p for p in profiles if p.rank is not None and p.steps}
    if len(by_rank) < 2 or len(by_rank) < len(profiles):
        return None
    labels = set.intersection(*(set(p.own) for p in by_rank.values()))
    if len(labels) < _FEWEST_STEPS:
        return None
    ranks, us = _last({rank: median(p.own[label] for label in labels) for rank, p in by_rank.items()})
    times = sum(_last({rank: p.own[label] for rank, p in by_rank.items()})[0] == ranks for label in labels)
    if not ranks or times < _MOST_STEPS * len(labels):
        return None
    slow = [by_rank[rank] for rank in ranks]
    others = tuple(p for rank, p in by_rank.items() if rank not in ranks)
    worst = max(slow, key=lambda p: median(p.own[label] for label in labels))
    us -= worst.queued_us  # on a crowded machine a rank can lose its processor in the same place of each step
    return _slow_ranks(ranks, worst, others, us) if us >= _LEAST_US and worst.share(us) >= _SHARE else None


def _last(own: dict[int, float]) -> tuple[tuple[int, ...], float]:
    """The few ranks beyond the widest gap between the ranks' own times, and its width; none where they are many."""
    ordered = sorted(own, key=lambda rank: own[rank])
    gaps = [own[b] - own[a] for a, b in pairwise(ordered)]
    at = gaps.index(max(gaps)) + 1
    few = ordered[at:] if len(ordered) - at <= len(ordered) // 2 else []
    return tuple(sorted(few)), gaps[at - 1]


def _slow_ranks(
    ranks: tuple[int, ...], worst: RankProfile, others: tuple[RankProfile, ...], us: float
) -> SlowRanks | None:
    usual = {name: median(p.parts[name] for p in others) for name in worst.parts if name != "communication"}
    phase = max(usual, key=lambda name: worst.parts[name] - usual[name])
    line, line_usual = _culprit(worst, others, us)
    if line is None and worst.device is None:
        return None  # to be woken up late, after a collective, looks the same
    return SlowRanks(ranks, worst, others, us, phase, usual[phase], line, line_usual)


def _culprit(worst: RankProfile, others: tuple[RankProfile, ...], us: float) -> tuple[OwnLine | None, float]:
    """The line that takes most of what the rank takes longer, and what it takes the others.

    Where another program has a part of its processor, all of its lines are slower, and none is to blame.
    """
    usual = [(line, median(_us(p, line) for p in others)) for line in worst.own_lines]
    line, here = max(usual, key=lambda one: one[0].us - one[1], default=(None, 0.0))
    if line is None or line.us - here < _MOST_OF_IT * us:
        return None, 0.0
    slower = median([other.us / there for other, there in usual if other is not line and there >= _NOISE_US] or [1.0])
    return (line, here) if line.us >= _UNLIKE * max(slower, 1.0) * here else (None, 0.0)


def _us(profile: RankProfile, line: OwnLine) -> float:
    place = line.file, line.line, line.function
    return next((own.us for own in profile.own_lines if (own.file, own.line, own.function) == place), 0.0)
