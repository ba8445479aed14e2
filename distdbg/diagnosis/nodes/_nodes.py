"""Findings about nodes before a job: what they share, and one comparison of what should be the same on all."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from distdbg.evidence.host.preflight import NodeProbe
from distdbg.findings import entry
from distdbg.model import CauseClass, Confidence, Finding, Severity

_Who = TypeVar("_Who", bound=Hashable)


def of_nodes(
    finding_id: str,
    nodes: Sequence[NodeProbe],
    summary: str,
    cause: str = "",
    *,
    severity: Severity | None = None,
    confidence: Confidence = "certain",
    remedy: str = "",
) -> Finding:
    return Finding(
        id=finding_id,
        severity=severity or entry(finding_id).severity,
        confidence=confidence,
        summary=summary,
        cause=cause,
        remedy=remedy or entry(finding_id).remedy,
        nodes=tuple(node.name for node in nodes),
        evidence=tuple(node.citation for node in nodes[:3]),
        cause_class=CauseClass.OBSERVATION,
    )


def parted(said: Mapping[_Who, str]) -> list[tuple[str, list[_Who]]]:
    """Value -> who has it, the most common first, then who comes first; one entry where all are the same."""
    by_value: dict[str, list[_Who]] = {}
    for who, value in said.items():
        by_value.setdefault(value, []).append(who)
    places = {who: place for place, who in enumerate(said)}
    return sorted(by_value.items(), key=lambda item: (-len(item[1]), places[item[1][0]]))


def size(number: float) -> str:
    """`812 MB`, `1.2 GB`: as disks and networks count."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.{0 if number >= 100 * factor else 1}f} {unit}"
    return f"{number:.0f} bytes"
