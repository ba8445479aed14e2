"""What the checks on gradients share: every series of a run, and a finding for the ranks that have the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from distdbg.diagnosis.failures.findings import hosts, who
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.training.gradients import GradientSample, GradientSeries
from distdbg.model import Citation, Finding, FindingDoc

#: Where a symptom was read, and by which rank.
Seen = tuple[int, GradientSeries, GradientSample]


def each_series(evidence: RunEvidence, fewest: int) -> Iterator[tuple[int, GradientSeries]]:
    """Those with at least so many samples, and their ranks."""
    for rank in evidence.ranks:
        for series in rank.gradients:
            if len(series.samples) >= fewest:
                yield rank.rank, series


def finding(
    evidence: RunEvidence, doc: FindingDoc, seen: Sequence[Seen], summary: str, cause: str,
    *, sure: bool = False,
) -> Finding:  # fmt: skip
    """About how the training is going: it explains no end, and changes no verdict and no exit code."""
    _, series, sample = seen[0]
    everybody = series.copies > 1 and series.copies == len(evidence.ranks)
    ranks = tuple(r.rank for r in evidence.ranks) if everybody else tuple(sorted({rank for rank, _, _ in seen}))
    if series.sharded:
        cause += " The figures are of the parts that these ranks hold."
    elif everybody:
        cause += f" All ranks have the same gradients; rank {seen[0][0]} looked at them."
    return Finding(
        id=doc.id,
        severity=doc.severity,
        confidence="certain" if sure else "likely",
        summary=f"{summary} ({who(evidence, ranks)})",
        cause=cause,
        remedy=doc.remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        step=sample.step,
        evidence=tuple(Citation(s.path, at.line or None, f"step {at.step}") for _, s, at in seen[:3]),
    )


def together(found: Iterable[tuple[str, Seen]]) -> list[list[Seen]]:
    """Those of one key, which names optimizer and layer, as one."""
    same: dict[str, list[Seen]] = {}
    for key, seen in found:
        same.setdefault(key, []).append(seen)
    return list(same.values())
