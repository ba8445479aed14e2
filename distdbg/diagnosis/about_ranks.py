"""Make findings about a job that runs or has not begun: they explain no failure and change no exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from distdbg.diagnosis.failures.findings import hosts
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entry
from distdbg.model import Citation, Confidence, Finding, Severity


def observation(
    finding_id: str,
    summary: str,
    cause: str = "",
    *,
    confidence: Confidence,
    severity: Severity | None = None,
    remedy: str = "",
    evidence: Iterable[Citation] = (),
) -> Finding:
    """A finding; `severity` and `remedy` default to those of the catalogue's entry."""
    doc = entry(finding_id)
    return Finding(
        id=finding_id,
        severity=severity or doc.severity,
        confidence=confidence,
        summary=summary,
        cause=cause,
        remedy=remedy or doc.remedy,
        evidence=tuple(evidence),
    )


def about_ranks(
    run: RunEvidence,
    finding_id: str,
    ranks: Iterable[int],
    summary: str,
    cause: str = "",
    *,
    confidence: Confidence = "likely",
    severity: Severity | None = None,
    remedy: str = "",
    step: int | None = None,
    evidence: Iterable[Citation] = (),
    first_seen: float | None = None,
    explained_by: str | None = None,
    side: Literal["host", "device"] | None = None,
) -> Finding:
    """An observation of these ranks, on their nodes."""
    known = tuple(sorted(set(ranks)))
    found = observation(
        finding_id, summary, cause, confidence=confidence, severity=severity, remedy=remedy, evidence=evidence
    )
    return replace(found, ranks=known, nodes=hosts(run, known), step=step, explained_by=explained_by,
                   first_seen=first_seen, side=side)  # fmt: skip


def apart(values: Mapping[int, str]) -> tuple[tuple[int, ...], bool]:
    """The ranks whose value is not that of more than half of them, and whether there is such a half: else all ranks."""
    common, times = Counter(values.values()).most_common(1)[0]
    decided = 2 * times > len(values)
    return tuple(sorted(rank for rank, value in values.items() if not decided or value != common)), decided
