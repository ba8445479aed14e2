"""What the guards have told becomes findings: the same place on several ranks is one finding that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from distdbg.diagnosis.failures.findings import hosts, who
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Citation, Confidence, Finding, FindingDoc, Severity

Facts = Sequence[GuardFact]
#: So many facts of one finding are cited.
_MOST_CITED = 3


def facts(evidence: RunEvidence, guard: str) -> list[GuardFact]:
    """Every rank's, in the order of ranks and then of time."""
    return [fact for rank in evidence.ranks for fact in rank.guards if fact.guard == guard]


def by_place(found: Iterable[GuardFact]) -> list[list[GuardFact]]:
    """Those of one line together; those without a line are one place, too."""
    places: dict[tuple[str, int] | None, list[GuardFact]] = {}
    for fact in found:
        places.setdefault(fact.where[:2] if fact.where else None, []).append(fact)
    return list(places.values())


def alike(found: Iterable[GuardFact], *fields: str) -> Iterator[Facts]:
    """Facts of ranks that average their gradients (`among`), of one line and step, the same in these fields.

    The first such group of each line; a rank's last word counts.
    """
    same: dict[str, dict[int, GuardFact]] = {}
    for fact in found:
        among = fact.fields.get("among")
        if isinstance(among, list) and fact.rank in among:
            key = str([fact.where, fact.step, among, *(fact.fields.get(field) for field in fields)])
            same.setdefault(key, {})[fact.rank] = fact
    told = set()
    for by_rank in same.values():
        group = list(by_rank.values())
        if len(group) > 1 and group[0].where not in told:
            told.add(group[0].where)
            yield group


def place(fact: GuardFact) -> str:
    """`train.py:33 in main`, or what there is instead."""
    if fact.where is None:
        return "a line that is not the script's"
    file, line, function = fact.where
    return f"{file.rpartition('/')[2]}:{line}" + (f" in {function}" if function != "<module>" else "")


def observe(
    evidence: RunEvidence,
    doc: FindingDoc,
    found: Facts,
    summary: str,
    cause: str = "",
    *,
    remedy: str = "",
    severity: Severity | None = None,
    confidence: Confidence = "certain",
) -> Finding:
    """A finding about how the training is going: it explains no end, and changes no verdict and no exit code."""
    ranks = tuple(sorted({fact.rank for fact in found}))
    cited = [fact.citation for fact in found if fact.citation is not None]
    return Finding(
        id=doc.id,
        severity=severity or doc.severity,
        confidence=confidence,
        summary=f"{summary} ({who(evidence, ranks)})",
        cause=cause,
        remedy=remedy or doc.remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        step=min((fact.step for fact in found if fact.step is not None), default=None),
        evidence=tuple(Citation(c.path, c.line, c.where) for c in cited[:_MOST_CITED]),
        first_seen=min((fact.t for fact in found if fact.t is not None), default=None),
    )


def each_place(
    evidence: RunEvidence, doc: FindingDoc, tell: Callable[[Facts], tuple[str, str]], confidence: Confidence = "certain"
) -> Iterable[Finding]:
    """A finding for each line that the guard of this id has told of; `tell` gives its summary and its cause."""
    for found in by_place(facts(evidence, doc.id)):
        summary, cause = tell(found)
        yield observe(evidence, doc, found, summary, cause, confidence=confidence)
