"""What profiles tell becomes findings: the same place on several ranks is one, with what the worst of them pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from distdbg.checks._findings import hosts
from distdbg.evidence.profile import Dear, RankProfile
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Confidence, Finding, FindingDoc, fold_ranks

#: Less of a step than this is not worth a word, nor what is below a clock's and a profiler's own noise.
SHARE = 0.05
_FEWEST_US = 100.0
_MOST_CITED = 3
#: Of one kind so many places are told, the dearest first.
_MOST = 4


class Seen(NamedTuple):
    """One place on one rank."""

    profile: RankProfile
    dear: Dear


def places(evidence: RunEvidence, kind: str, worth: Callable[[Seen], bool] = lambda _: True) -> list[list[Seen]]:
    """Each place of this kind that costs a real share on some rank, with all ranks that have it; the dearest first."""
    same: dict[tuple[object, ...], list[Seen]] = {}
    for profile in evidence.profiles:
        for dear in profile.dear:
            one = Seen(profile, dear)
            if dear.kind == kind and is_dear(profile, dear.gain_us) and worth(one):
                same.setdefault((dear.place, dear.what), []).append(one)
    groups = [sorted(group, key=lambda s: -s.profile.share(s.dear.gain_us)) for group in same.values()]
    return sorted(groups, key=lambda g: -g[0].profile.share(g[0].dear.gain_us))[:_MOST]


def is_dear(profile: RankProfile, us: float, share: float = SHARE) -> bool:
    return us >= _FEWEST_US and profile.share(us) >= share


def where(dear: Dear) -> str:
    """`train.py:33 in main`; only the function where its source was not at hand; nothing where there are no stacks."""
    if dear.place is None:
        return "a line that is not known (the profile has no stacks)"
    file, line, function = dear.place[:3]
    short = file.rpartition("/")[2]
    named = "" if function == "<module>" else f" in {function}"
    if dear.lines:
        return f"{short}:{' or '.join(map(str, dear.lines[:4]))}{named}"
    return f"{function} ({short}, which has it near line {line})"


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
    doc: FindingDoc,
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
        id=doc.id,
        severity=doc.severity,
        confidence=confidence,
        summary=f"{summary} ({who(evidence, profiles)})",
        cause=cause,
        remedy=remedy or doc.remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        step=profiles[0].first_step,
        evidence=tuple(
            Citation(p.path, None, f"{p.steps} steps, {p.first} to {p.last}", quote if n == 0 else "")
            for n, p in enumerate(profiles[:_MOST_CITED])
        ),
    )


def of_place(
    evidence: RunEvidence,
    doc: FindingDoc,
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
        doc,
        [seen.profile for seen in group],
        summary=f"{summary}: {profile.share(dear.gain_us):.0%} of the step",
        cause=f"{bound} {cause}".strip(),
        quote=quote,
        confidence=confidence,
    )
