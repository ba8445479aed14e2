"""What profiles tell becomes findings: the same place on several ranks is one, with what the worst of them pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from distdbg.diagnosis.failures.findings import hosts
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import Dear, RankProfile
from distdbg.findings import entry
from distdbg.model import Citation, Confidence, Finding, fold_ranks

#: Less of a step than this is not worth a word, nor what is below a clock's and a profiler's own noise.
SHARE = 0.05
_FEWEST_US = 100.0
#: Of a wait for data; a loader that is asked for a batch takes its time, too.
_STARVED = 0.10
_STARVED_US = 1000.0
#: The first batch of a loader comes when its workers have started: a wait in the only step may be that.
_FEWEST_STEPS = 2
_MOST_CITED = 3
#: A rank that has so much of what the worst has has the same fault, though its own steps hide it: of a wait as long
#: a time, of what should not be called as many calls, however fast they are there.
_SAME = 0.1
#: Of one kind so many places are told, the dearest first.
_MOST = 4


class Seen(NamedTuple):
    """One place on one rank."""

    profile: RankProfile
    dear: Dear


def places(evidence: RunEvidence, kind: str, worth: Callable[[Seen], bool] = lambda _: True) -> list[list[Seen]]:
    """Each place of this kind that costs a real share on some rank, with all ranks that have it; the dearest first.

    A rank that waits for others has longer steps, and a smaller share of them: it is of those that have it, too.
    """
    all_of_them = same_places(evidence, kind)
    sick = (group for group in all_of_them if any(is_dear(s.profile, s.dear.gain_us) and worth(s) for s in group))
    groups = [sorted(_alike(group), key=lambda s: -s.profile.share(s.dear.gain_us)) for group in sick]
    return sorted(groups, key=lambda g: -g[0].profile.share(g[0].dear.gain_us))[:_MOST]


def same_places(evidence: RunEvidence, kind: str) -> list[list[Seen]]:
    """Each place of this kind, with all ranks that have it, whatever it costs."""
    same: dict[tuple[object, ...], list[Seen]] = {}
    for profile in evidence.profiles:
        for dear in profile.dear:
            if dear.kind == kind:
                same.setdefault(_sameness(dear), []).append(Seen(profile, dear))
    return list(same.values())


def _alike(group: list[Seen]) -> list[Seen]:
    """By the host's time, too: what of it could be gained is not counted in one way on all ranks."""
    gain, us = max(s.dear.gain_us for s in group), max(s.dear.us for s in group)
    calls = max(s.dear.calls for s in group)
    return [
        s
        for s in group
        if s.dear.gain_us >= _SAME * gain
        or s.dear.us >= _SAME * us
        or (s.dear.kind != "wait" and s.dear.calls >= _SAME * calls)
    ]


def _sameness(dear: Dear) -> tuple[object, ...]:
    """Functions that were open when the profiler began have the line where they stood: another on another rank."""
    place = dear.place
    return (place and (place.file, place.function, place.callee), dear.lines or (place and place.line), dear.what)


def is_dear(profile: RankProfile, us: float, share: float = SHARE) -> bool:
    return us >= _FEWEST_US and profile.share(us) >= share


def starved_us(profile: RankProfile) -> float:
    """us of a step; on a GPU as far as it stood idle meanwhile."""
    us = profile.parts.get("data wait", 0.0)
    return us if profile.device is None else min(us, profile.device.idle.get("data wait", 0.0) * profile.step_us)


def starves(profile: RankProfile) -> bool:
    """By the median of the steps, too: one long wait among them is none."""
    us = min(starved_us(profile), profile.data_us)
    return profile.steps >= _FEWEST_STEPS and us >= _STARVED_US and is_dear(profile, us, _STARVED)


def times(calls: float) -> str:
    return "once a step" if round(calls) <= 1 else f"{calls:.0f} times a step"


def cost(profile: RankProfile, us: float) -> str:
    """`31 % of a step, 1.24 of 4.00 ms`."""
    return f"{profile.share(us):.0%} of a step, {us / 1000:.2f} of {profile.step_us / 1000:.2f} ms"


def who(evidence: RunEvidence, profiles: Iterable[RankProfile]) -> str:
    """`rank 3`, `ranks 0-2`, `all 8 ranks`; the file's name where its rank is not known."""
    found = list(profiles)
    ranks = {p.rank for p in found if p.rank is not None}
    if not ranks:
        return found[0].who if len(found) == 1 else f"{len(found)} files"
    if len(ranks) == 1:
        return f"rank {ranks.pop()}"
    everybody = {r.rank for r in evidence.ranks} or {p.rank for p in evidence.profiles if p.rank is not None}
    return f"all {len(ranks)} ranks" if ranks == everybody else f"ranks {fold_ranks(ranks)}"


def found(
    evidence: RunEvidence,
    finding_id: str,
    profiles: list[RankProfile],
    *,
    summary: str,
    cause: str,
    quote: str,
    remedy: str = "",
    confidence: Confidence = "likely",
) -> Finding:
    """About how the training goes: it explains no end. The first of the profiles is the one that is told of."""
    ranks = tuple(sorted({p.rank for p in profiles if p.rank is not None}))
    return Finding(
        id=finding_id,
        severity=entry(finding_id).severity,
        confidence=confidence,
        summary=f"{summary} ({who(evidence, profiles)})",
        cause=cause,
        remedy=remedy or entry(finding_id).remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        step=profiles[0].first_step,
        evidence=tuple(
            Citation(p.path, None, p.counted, quote if n == 0 else "") for n, p in enumerate(profiles[:_MOST_CITED])
        ),
    )


def of_place(
    evidence: RunEvidence,
    finding_id: str,
    group: list[Seen],
    summary: str,
    cause: str = "",
    *,
    confidence: Confidence = "likely",
) -> Finding:
    """`summary` says what and where; what it costs on the worst rank is added, as the bound that it is."""
    profile, dear = group[0]
    bound = f"At most {cost(profile, dear.gain_us)}, can be gained{f' on {profile.who}' if len(group) > 1 else ''}."
    call = f"{dear.place.callee}: " if dear.place and dear.place.callee else ""
    quote = f"{call}{times(dear.calls)}, {dear.us / 1000:.3f} ms of the host"
    return found(
        evidence,
        finding_id,
        [seen.profile for seen in group],
        summary=f"{summary}: {profile.share(dear.gain_us):.0%} of the step",
        cause=f"{bound} {cause}".strip(),
        quote=quote,
        confidence=confidence,
    )
