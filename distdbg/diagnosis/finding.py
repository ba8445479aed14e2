"""Build a finding: the only place in the diagnosis that makes one. The catalogue gives what a rule does not say.

The hosts of a finding's ranks are filled in where the rule runs (`rules.Rule`), because they are part of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from distdbg.diagnosis.timeline.call_lines import ModelPlace
from distdbg.findings import entry
from distdbg.model import CauseClass, Citation, Confidence, Finding, Severity

_NO_PLACE = ModelPlace()


def build_finding(
    finding_id: str,
    ranks: Iterable[int],
    summary: str,
    cause: str = "",
    *,
    confidence: Confidence = "likely",
    severity: Severity | None = None,
    remedy: str = "",
    nodes: Iterable[str] = (),
    step: int | None = None,
    evidence: Iterable[Citation | None] = (),
    cause_class: CauseClass = CauseClass.OBSERVATION,
    first_seen: float | None = None,
    explained_by: str | None = None,
    side: Literal["host", "device"] | None = None,
    place: ModelPlace = _NO_PLACE,
) -> Finding:
    """`severity` and `remedy` default to those of the catalogue's entry; `first_seen` is in epoch seconds.

    Raises KeyError if one of the two is missing and the catalogue has no entry of this id.
    """
    return Finding(
        id=finding_id,
        severity=severity or entry(finding_id).severity,
        confidence=confidence,
        summary=summary,
        cause=cause,
        remedy=remedy or entry(finding_id).remedy,
        ranks=tuple(sorted(set(ranks))),
        nodes=tuple(nodes),
        step=step,
        explained_by=explained_by,
        evidence=tuple(citation for citation in evidence if citation is not None),
        cause_class=cause_class,
        first_seen=first_seen,
        side=side,
        module=place.module,
        phase=place.phase,
    )
