"""Every finding that distdbg can give, with its documentation: what `distdbg findings` shows."""

from __future__ import annotations

from dataclasses import replace

from distdbg.evidence.logs.messages import known_messages
from distdbg.findings import catalogue
from distdbg.model import FindingDoc


def documented() -> dict[str, FindingDoc]:
    """id -> documentation, by id: the catalogue, and the ids that only a known message gives."""
    found = {doc.id: doc for doc in _known_docs()} | catalogue()
    return {name: _with_lint(found[name]) for name in sorted(found)}


def _with_lint(entry: FindingDoc) -> FindingDoc:
    """How a run shows it, and then how lint does."""
    if entry.lint is None or entry.lint.how_seen == entry.how_seen:
        return entry
    return replace(
        entry, how_seen=f"{entry.how_seen} By `distdbg lint`, before the run: {entry.lint.how_seen}", lint=None
    )


def _known_docs() -> tuple[FindingDoc, ...]:
    """One for each id of the list of known messages, from its first message. The catalogue has better ones for some."""
    found: dict[str, FindingDoc] = {}
    for known in known_messages():
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
