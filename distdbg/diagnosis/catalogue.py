"""Every finding that distdbg can give, with its documentation: what `distdbg findings` shows."""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnosis.death.errors import known_docs
from distdbg.findings import catalogue
from distdbg.model import FindingDoc


def documented() -> dict[str, FindingDoc]:
    """id -> documentation, by id: the catalogue, and the ids that only a known message gives."""
    found = {doc.id: doc for doc in known_docs()} | catalogue()
    return {name: _with_lint(found[name]) for name in sorted(found)}


def _with_lint(entry: FindingDoc) -> FindingDoc:
    """How a run shows it, and then how lint does."""
    if entry.lint is None or entry.lint.how_seen == entry.how_seen:
        return entry
    return replace(
        entry, how_seen=f"{entry.how_seen} By `distdbg lint`, before the run: {entry.lint.how_seen}", lint=None
    )
