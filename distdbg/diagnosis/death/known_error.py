"""A rank died of an error whose message belongs to a finding that guards or other checks can give as well."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import OWN_CHECKS, finding, groups
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.evidence.logs.messages import known_messages
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

#: Filled from the list of known messages when somebody asks: `docs()`.
DOCS: tuple[FindingDoc, ...] = ()


def docs() -> tuple[FindingDoc, ...]:
    """One for each id that only the list of known messages gives; a check of the same name documents it better."""
    found: dict[str, FindingDoc] = {}
    for known in known_messages():
        if known.finding not in OWN_CHECKS:
            found.setdefault(
                known.finding,
                FindingDoc(
                    id=known.finding,
                    severity="error",
                    title=known.symptom.rstrip("."),
                    meaning=f"{known.symptom} {known.cause}",
                    how_seen="By the message of the exception that ended a rank.",
                    remedy=known.fix,
                    source=known.source,
                ),
            )
    return tuple(found.values())


def check(evidence: RunEvidence) -> Iterable[Finding]:
    for group in groups(f for f in failures(evidence) if f.finding not in OWN_CHECKS):
        yield finding(evidence, group)
