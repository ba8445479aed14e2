"""Make findings from the facts that guards recorded in the ranks: one for each line, with all ranks that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import Rule
from distdbg.evidence.jsonl import finite
from distdbg.evidence.run import UNKNOWN_RANK, GuardFact, RunEvidence
from distdbg.findings import entry
from distdbg.model import Citation, Confidence, Finding, Severity, grouped

Facts = Sequence[GuardFact]
#: Facts that a finding cites. They say the same; the first few show which files they are in.
_MOST_CITED = 3


@dataclass(frozen=True)
class GuardRow:
    """What a guard's fact means. The guard, its fact and the finding have one id.

    `summary` and `cause` are templates: `{name}` is a field of the first fact of a line, `{place}` is that line. An id
    may have several rows; the first row counts whose `when` accepts the fields. Without `severity` and `remedy`, those
    of the catalogue's entry are used.
    """

    id: str
    summary: str
    cause: str = ""
    when: Callable[[Mapping[str, Any]], object] = lambda _fields: True
    confidence: Confidence = "certain"
    severity: Severity | None = None
    remedy: str = ""


def guard_rules(module: str, *rows: GuardRow) -> tuple[Rule, ...]:
    """One rule for each id in the table of this module."""
    by_id = grouped((row.id, row) for row in rows)
    return tuple(
        Rule(
            module.split(".")[-2],
            name.replace("-", "_"),
            (entry(name),),
            _check_of(name, those),
            needs=("rank.guards",),
        )
        for name, those in by_id.items()
    )


def _check_of(name: str, rows: Sequence[GuardRow]) -> Callable[[RunEvidence], Iterable[Finding]]:
    def check(evidence: RunEvidence) -> Iterator[Finding]:
        for found in by_place(facts(evidence, name)):
            fields = found[0].fields
            row = next((row for row in rows if row.when(fields)), None)
            if row is not None:
                words = _Words({key: _Word(value) for key, value in {**fields, "place": place(found[0])}.items()})
                summary, cause = row.summary.format_map(words), row.cause.format_map(words)
                yield guard_finding(evidence, name, found, summary, cause, remedy=row.remedy, severity=row.severity,
                              confidence=row.confidence)  # fmt: skip

    return check


@dataclass(frozen=True)
class _Word:
    """A field in a sentence: a list with commas, a number with the template's format, anything else as it is."""

    value: object

    def __format__(self, spec: str) -> str:
        if isinstance(self.value, list):
            return ", ".join(map(str, self.value))
        is_number = isinstance(self.value, float) or finite(self.value) is not None
        return format(self.value, spec) if is_number else str(self.value)


class _Words(dict[str, _Word]):
    """The words of a fact; `?` for a field that an older run did not record."""

    def __missing__(self, name: str) -> _Word:
        return _Word("?")


def facts(evidence: RunEvidence, guard: str) -> list[GuardFact]:
    """The facts of this guard, in the order of ranks and then of time."""
    return [fact for rank in (*evidence.ranks, *evidence.unattributed) for fact in rank.guards if fact.guard == guard]


def by_place(found: Iterable[GuardFact]) -> list[list[GuardFact]]:
    """The facts of each line; facts without a line count as one line."""
    places = grouped((fact.where[:2] if fact.where else None, fact) for fact in found)
    return list(places.values())


def alike(found: Iterable[GuardFact], *fields: str) -> Iterator[Facts]:
    """Facts of ranks that average their gradients (`among`), of one line and step, with equal values in `fields`.

    Gives the first such group of each line, with the last fact of each rank.
    """
    same: dict[str, dict[int, GuardFact]] = {}
    for fact in found:
        among = fact.fields.get("among")
        if isinstance(among, list) and fact.rank in among:
            key = str([fact.where, fact.step, among, *(fact.fields.get(field) for field in fields)])
            same.setdefault(key, {})[fact.rank] = fact
    lines = set()
    for by_rank in same.values():
        group = list(by_rank.values())
        if len(group) > 1 and group[0].where not in lines:
            lines.add(group[0].where)
            yield group


def place(fact: GuardFact) -> str:
    """`train.py:33 in main`."""
    if fact.where is None:
        return "a line outside the script"
    file, line, function = fact.where
    return f"{file.rpartition('/')[2]}:{line}" + (f" in {function}" if function != "<module>" else "")


def guard_finding(
    evidence: RunEvidence,
    finding_id: str,
    found: Facts,
    summary: str,
    cause: str = "",
    *,
    remedy: str = "",
    severity: Severity | None = None,
    confidence: Confidence = "certain",
) -> Finding:
    """A finding about the ranks of these facts."""
    ranks = tuple(sorted({fact.rank for fact in found} - {UNKNOWN_RANK}))
    cited = [fact.citation for fact in found if fact.citation is not None]
    return build_finding(
        finding_id, ranks, f"{summary} ({who(evidence, ranks)})" if ranks else summary, cause,
        remedy=remedy, severity=severity, confidence=confidence,
        step=min((fact.step for fact in found if fact.step is not None), default=None),
        evidence=(Citation(c.path, c.line, c.where) for c in cited[:_MOST_CITED]),
        first_seen=min((fact.t for fact in found if fact.t is not None), default=None),
    )  # fmt: skip
