"""The catalogue of findings: one entry for each id, as data. `distdbg findings`, the rules, lint and the docs read it.

A file a room, and in it the entries by id. An id is a contract: it is never renamed. Ids that are only recognised by a
known message are in configs/messages.yaml.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from distdbg.findings import death, hang, memory, nodes, parallel, slow, training
from distdbg.model import FindingDoc


@cache
def catalogue() -> dict[str, FindingDoc]:
    """id -> entry."""
    rooms = (hang, death, slow, training, parallel, memory, nodes)
    return {entry.id: entry for room in rooms for entry in room.ENTRIES}


def entry(name: str) -> FindingDoc:
    """The entry of this id."""
    return catalogue()[name]


def lint_entries(*ids: str) -> tuple[FindingDoc, ...]:
    """The entries of the ids that a rule of lint gives, as lint sees them."""
    return tuple(_as_lint_sees(catalogue()[name]) for name in ids)


def _as_lint_sees(entry: FindingDoc) -> FindingDoc:
    seen = entry.lint
    if seen is None:
        raise LookupError(f"the entry {entry.id} does not say how lint detects it")
    return replace(
        entry,
        severity=seen.severity or entry.severity,
        title=seen.title or entry.title,
        how_seen=seen.how_seen,
        remedy=seen.remedy or entry.remedy,
    )
