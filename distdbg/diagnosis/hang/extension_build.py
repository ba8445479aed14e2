"""Ranks build a C++ extension, or wait for the lock file of a build: one that goes on, that stands, or that is dead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import citations, since, waited
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.timeline.outside import describe
from distdbg.diagnosis.timeline.standing import Build, Standing
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Confidence, Finding, Severity
from distdbg.wording import plural


@dataclass(frozen=True)
class _Told:
    """What is known of the builds of one extension. `ranks` are those at fault."""

    ranks: tuple[int, ...]
    words: str
    severity: Severity
    confidence: Confidence


@rule("extension-build")
def extension_build(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not (hang.stands or hang.starting):
        return
    builds = {rank: (one, one.build) for rank, one in hang.standings.items() if one.build is not None}
    for extension in dict.fromkeys(build.extension for _, build in builds.values()):
        own = {rank: both for rank, both in builds.items() if both[1].extension == extension}
        waits = tuple(wait for wait in hang.waits if not own.keys().isdisjoint(wait.awaited))
        told = _builds(evidence, hang, own) or _waits(evidence, hang, own)
        yield build_finding(
            "extension-build",
            severity=told.severity,
            confidence=told.confidence,
            summary=told.words,
            cause=waited(evidence, hang, waits),
            ranks=told.ranks,
            evidence=citations(hang, told.ranks, own),
            cause_class=CauseClass.OBSERVATION if told.severity == "warning" else CauseClass.STUCK,
            first_seen=since(hang, waits),
        )


def _builds(evidence: RunEvidence, hang: Hang, own: dict[int, tuple[Standing, Build]]) -> _Told | None:
    """The rank that builds; the others wait for it."""
    builders = tuple(rank for rank, (_, build) in own.items() if not build.waits)
    if not builders:
        return None
    waiting = tuple(rank for rank in own if rank not in builders)
    standing = own[builders[0]][0]
    words = f"{who(evidence, builders)} {plural(standing.phrase, builders)}{_at(standing)}"
    if waiting:
        words += f"; {who(evidence, waiting)} {plural('waits', waiting)} for its lock file"
    busy = any(own[rank][0].busy for rank in builders)
    return _Told(builders, words, _severity(hang, goes_on=busy), "certain" if busy else "likely")


def _waits(evidence: RunEvidence, hang: Hang, own: dict[int, tuple[Standing, Build]]) -> _Told:
    """No rank builds: a process of another job, of another host, or of a job that is dead."""
    ranks = tuple(own)
    locks = [build.lock for _, build in own.values() if build.lock is not None]
    standing = own[ranks[0]][0]
    words = f"{who(evidence, ranks)} {plural(standing.phrase, ranks)}{_at(standing)}"
    if not locks:
        return _Told(ranks, f"{words}, and which lock file is not known", _severity(hang, goes_on=False), "likely")
    lock = next((lock for lock in locks if lock.holders), locks[0])
    owner = "" if lock.holders or lock.age_s is None else ": its owner is dead, or on another host"
    kept = bool(lock.holders)
    return _Told(ranks, f"{words}: lock file {describe(lock)}{owner}", _severity(hang, goes_on=kept), "likely")


def _severity(hang: Hang, *, goes_on: bool) -> Severity:
    """A launch that has called the job hung has waited for as long as a build may take."""
    if hang.starting or (goes_on and hang.dump.quiet_s is None):
        return "warning"
    return "error"


def _at(standing: Standing) -> str:
    return f" at {standing.frame.short}" if standing.frame is not None else ""
