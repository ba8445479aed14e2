"""Detect steps that wait for their batch."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.slow._profiles import cost, profile_finding, starved_us, starves, times
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import CostlyPlace, RankProfile
from distdbg.model import Finding

_MOST_OF_IT = 0.5
_SURE_STEPS = 3
_WITHOUT_WORKERS = (
    "Give the DataLoader num_workers=2 or more, and persistent_workers=True: now the step itself loads. Make the line "
    "that is named cheaper, or do its work once and store it."
)


@rule("data-starved", needs=("profiles",))
def data_starved(evidence: RunEvidence) -> Iterator[Finding]:
    sick = sorted((p for p in evidence.profiles if starves(p)), key=lambda p: -p.share(starved_us(p)))
    if not sick:
        return
    worst = sick[0]
    lost, single = starved_us(worst), worst.loader_has_workers is False
    loads = [d for d in worst.costly if d.kind == "load" and d.us >= _MOST_OF_IT * worst.data_us]
    costliest = max(loads, key=lambda costly: costly.us, default=None)
    yield profile_finding(
        evidence,
        "data-starved",
        sick,
        summary=f"steps wait for their data: {worst.share(lost):.0%} of the step{_at(costliest)}",
        cause=f"At most {cost(worst, lost)}, can be gained. {_loader(worst)}".strip(),
        quote=f"{worst.loader or 'loader'}: {worst.parts['data wait'] / 1000:.2f} ms a step",
        remedy=_WITHOUT_WORKERS if single else "",
        confidence="certain" if worst.steps >= _SURE_STEPS else "likely",
    )


def _at(costliest: CostlyPlace | None) -> str:
    if costliest is None or costliest.place is None:
        return ""
    return f", most of it in {costliest.place.callee}() at {costliest.where}, {times(costliest.calls)}"


def _loader(profile: RankProfile) -> str:
    if profile.loader_has_workers is None:
        return ""
    if profile.loader_has_workers:
        return "The loader has workers, and they are too slow."
    return "The loader has no workers (num_workers=0)."
