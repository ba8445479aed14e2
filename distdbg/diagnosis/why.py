"""Explain the diagnosis itself: what each rule read and found, the wait graph, and the failures.

For `distdbg explain --why`, the debugger of the diagnosis itself. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.rules import Rule, all_rules
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Finding

_Record = TypeVar("_Record", RunEvidence, RankRecord)
_OF_RUN = frozenset(field.name for field in fields(RunEvidence))
_OF_RANK = frozenset(field.name for field in fields(RankRecord))


@dataclass(frozen=True)
class RuleTrace:
    """One rule and one run. `read`: parts of the evidence that it asked for, and how many records each had.

    Parts of a rank are called `rank.<field>`, and their number is that of the ranks that have any. `failed` is the
    exception that ended the rule, empty where none did.
    """

    rule: Rule
    findings: tuple[Finding, ...]
    read: tuple[tuple[str, int], ...]
    failed: str = ""

    @property
    def fired(self) -> bool:
        return bool(self.findings)


@dataclass(frozen=True)
class Why:
    rules: tuple[RuleTrace, ...]
    #: None where no dump shows a job without progress
    hang: Hang | None
    #: how each rank failed
    failures: tuple[RankFailure, ...]


def trace(evidence: RunEvidence) -> Why:
    """Run every rule once more, on a copy of the evidence that notes what is read.

    The wait graph and the failures are found before the rules run: what these read is not counted as the rules'.
    """
    read: dict[str, int] = {}
    noted = _noting(evidence, read)
    hang, failed = hang_of(noted), tuple(failures(noted))
    return Why(tuple(_trace(rule, noted, read) for rule in all_rules()), hang, failed)


def _trace(rule: Rule, noted: RunEvidence, read: dict[str, int]) -> RuleTrace:
    read.clear()
    try:
        findings, failed = tuple(rule.run(noted)), ""
    except Exception as error:
        findings, failed = (), repr(error)
    return RuleTrace(rule, findings, tuple(sorted(read.items())), failed)


def _noting(evidence: RunEvidence, read: dict[str, int]) -> RunEvidence:
    """A copy whose fields, and those of its ranks, are noted in `read` when they are asked for."""

    class NotedRank(RankRecord):
        def __getattribute__(self, name: str) -> object:
            part = f"rank.{name}"
            if name in _OF_RANK and part not in read:
                read[part] = sum(1 for rank in evidence.ranks if getattr(rank, name))
            return super().__getattribute__(name)

    class NotedRun(RunEvidence):
        def __getattribute__(self, name: str) -> object:
            value = super().__getattribute__(name)
            if name in _OF_RUN:
                read[name] = _count(value)
            return value

    ranks = tuple(_copied(rank, NotedRank) for rank in evidence.ranks)
    return _copied(replace(evidence, ranks=ranks), NotedRun)


def _copied(record: RunEvidence | RankRecord, kind: type[_Record]) -> _Record:
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)})


def _count(value: object) -> int:
    if value is None:
        return 0
    return len(value) if isinstance(value, Sized) and not isinstance(value, str) else int(bool(value))
