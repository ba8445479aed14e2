"""Group the costly places of profiles: the same place on several ranks is one, with the cost of the worst rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from distdbg.diagnosis.finding import build_finding
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import CostlyPlace, RankProfile
from distdbg.model import Citation, Confidence, Finding
from distdbg.wording import name_ranks

#: Less of a step than this is not worth a word, nor what is below a clock's and a profiler's own noise.
SHARE = 0.05
_FEWEST_US = 100.0
#: Of a wait for data; a loader that is asked for a batch takes its time, too.
_STARVED = 0.10
_STARVED_US = 1000.0
#: The first batch of a loader comes when its workers have started: a wait in the only step may be that.
_FEWEST_STEPS = 2
_MOST_CITED = 3
#: A rank that has so much of what the ranks with a real cost have has the same fault, though its own steps hide it: of
#: a wait as long a time, of what should not be called as many calls, however fast they are there.
_SAME = 0.1
#: At most this many places of one kind are listed, the costliest first.
_MOST = 4


class SeenPlace(NamedTuple):
    """One place on one rank."""

    profile: RankProfile
    costly: CostlyPlace


def places(
    evidence: RunEvidence, kind: str, worth: Callable[[SeenPlace], bool] = lambda _: True
) -> list[list[SeenPlace]]:
    """Each place of this kind that costs a real share on some rank, with all ranks that have it; the costliest first.

    A rank that waits for others has longer steps, and a smaller share of them: it is of those that have it, too.
    """
    all_of_them = same_places(evidence, kind)
    sick = (group for group in all_of_them if any(is_costly(s.profile, s.costly.gain_us) and worth(s) for s in group))
    groups = [sorted(_alike(group), key=lambda s: -s.profile.share(s.costly.gain_us)) for group in sick]
    return sorted(groups, key=lambda g: -g[0].profile.share(g[0].costly.gain_us))[:_MOST]


def same_places(evidence: RunEvidence, kind: str) -> list[list[SeenPlace]]:
    """Each place of this kind, with all ranks that have it, at any cost."""
    same: dict[tuple[object, ...], list[SeenPlace]] = {}
    for profile in evidence.profiles:
        for costly in profile.costly:
            if costly.kind == kind:
                same.setdefault(_sameness(costly), []).append(SeenPlace(profile, costly))
    return list(same.values())


def _alike(group: list[SeenPlace]) -> list[SeenPlace]:
    """The ranks on which the place costs about as much as on the least of those where it costs a real share. The host's
    time counts too, because gains are not measured alike on all ranks."""
    sick = [s.costly for s in group if is_costly(s.profile, s.costly.gain_us)]
    gain, us = min(costly.gain_us for costly in sick), min(costly.us for costly in sick)
    calls = max(s.costly.calls for s in group)
    return [
        s
        for s in group
        if s.costly.gain_us >= _SAME * gain
        or s.costly.us >= _SAME * us
        or (s.costly.kind != "wait" and s.costly.calls >= _SAME * calls)
    ]


def _sameness(costly: CostlyPlace) -> tuple[object, ...]:
    """The key by which places are the same. A function that was open when the profiler began has its line at that
    moment, which differs between ranks."""
    place = costly.place
    return (place and (place.file, place.function, place.callee), costly.lines or (place and place.line), costly.what)


def is_costly(profile: RankProfile, us: float, share: float = SHARE) -> bool:
    return us >= _FEWEST_US and profile.share(us) >= share


def starved_us(profile: RankProfile) -> float:
    """us of a step; on a GPU only the part in which it was idle."""
    us = profile.parts.get("data wait", 0.0)
    return us if profile.device is None else min(us, profile.device.idle.get("data wait", 0.0) * profile.step_us)


def starves(profile: RankProfile) -> bool:
    """Whether the typical step waits for data. Uses the median of the steps: one long wait does not count."""
    us = min(starved_us(profile), profile.data_us)
    return profile.steps >= _FEWEST_STEPS and us >= _STARVED_US and is_costly(profile, us, _STARVED)


def times(calls: float) -> str:
    return "once a step" if round(calls) <= 1 else f"{calls:.0f} times a step"


def cost(profile: RankProfile, us: float) -> str:
    """`31 % of a step, 1.24 of 4.00 ms`."""
    return f"{profile.share(us):.0%} of a step, {us / 1000:.2f} of {profile.step_us / 1000:.2f} ms"


def who(evidence: RunEvidence, profiles: Iterable[RankProfile]) -> str:
    """Return `rank 3`, `ranks 0-2`, or `all 8 ranks` if the job has no others; file names if no rank is known."""
    found = list(profiles)
    ranks = {p.rank for p in found if p.rank is not None}
    if not ranks:
        return found[0].who if len(found) == 1 else f"{len(found)} files"
    return f"all {len(ranks)} ranks" if 1 < len(ranks) == evidence.world_size else name_ranks(ranks)


def profile_finding(
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
    """The first of the profiles is the one that is described."""
    first, *others = profiles
    return build_finding(
        finding_id, (p.rank for p in profiles if p.rank is not None),
        f"{summary} ({who(evidence, profiles)})", cause, confidence=confidence, remedy=remedy, step=first.first_step,
        evidence=(Citation(first.path, None, first.counted, quote),
                  *(Citation(p.path, None, p.counted) for p in others[: _MOST_CITED - 1])),
    )  # fmt: skip


def place_finding(
    evidence: RunEvidence,
    finding_id: str,
    group: list[SeenPlace],
    summary: str,
    cause: str = "",
    *,
    confidence: Confidence = "likely",
) -> Finding:
    """`summary` says what and where; what it costs on the worst rank is added, as the bound that it is."""
    profile, costly = group[0]
    bound = f"At most {cost(profile, costly.gain_us)}, can be gained{f' on {profile.who}' if len(group) > 1 else ''}."
    call = f"{costly.place.callee}: " if costly.place and costly.place.callee else ""
    quote = f"{call}{times(costly.calls)}, {costly.us / 1000:.3f} ms of the host"
    return profile_finding(
        evidence,
        finding_id,
        [seen.profile for seen in group],
        summary=f"{summary}: {profile.share(costly.gain_us):.0%} of the step",
        cause=f"{bound} {cause}".strip(),
        quote=quote,
        confidence=confidence,
    )
