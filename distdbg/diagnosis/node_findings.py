"""Make findings about nodes before a job, and compare what should be the same on all nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from distdbg.diagnosis.finding import build_finding
from distdbg.evidence.host.preflight import NodeProbe
from distdbg.evidence.run import RunEvidence
from distdbg.model import Confidence, Finding, Severity, grouped

_Who = TypeVar("_Who", bound=Hashable)
_Key = TypeVar("_Key", bound=Hashable)


def node_finding(
    finding_id: str,
    nodes: Sequence[NodeProbe],
    summary: str,
    cause: str = "",
    *,
    severity: Severity | None = None,
    confidence: Confidence = "certain",
    remedy: str = "",
) -> Finding:
    return build_finding(
        finding_id, (), summary, cause,
        confidence=confidence, severity=severity, remedy=remedy, nodes=(node.name for node in nodes),
        evidence=(node.citation for node in nodes[:3]),
    )  # fmt: skip


def looks(evidence: RunEvidence, look: str) -> Iterator[tuple[NodeProbe, Mapping[str, Any]]]:
    """Nodes with these facts, and the facts; none without a preflight."""
    return evidence.preflight.each(look) if evidence.preflight is not None else iter(())


def together(said: Iterable[tuple[_Key, NodeProbe]]) -> Iterable[tuple[_Key, list[NodeProbe]]]:
    """Each distinct statement once, with its nodes."""
    return grouped(said).items()


def parted(said: Mapping[_Who, str]) -> list[tuple[str, list[_Who]]]:
    """Value -> who has it, the most common first, then who comes first; one entry where all are the same."""
    by_value = grouped((value, who) for who, value in said.items())
    places = {who: place for place, who in enumerate(said)}
    return sorted(by_value.items(), key=lambda item: (-len(item[1]), places[item[1][0]]))
