"""The catalogue of findings: one entry for each id, as data. `distdbg findings`, the rules, lint and the docs read it.

A file for each family, with its entries in the order of their ids. An id is a contract: it is never renamed. Ids that
only a known message gives are in configs/messages.yaml.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from distdbg.findings import death, hang, memory, nodes, parallel, scheduler, slow, training
from distdbg.model import FindingDoc

FAMILIES = (hang, death, scheduler, slow, training, parallel, memory, nodes)


@cache
def catalogue() -> dict[str, FindingDoc]:
    """id -> entry."""
    return {entry.id: entry for family in FAMILIES for entry in family.ENTRIES}


def entry(name: str) -> FindingDoc:
    """The entry of this id."""
    return catalogue()[name]


def lint_entry(name: str) -> FindingDoc:
    """The entry of the id that a rule of lint gives, as lint sees it."""
    found = entry(name)
    seen = found.lint
    if seen is None:
        raise LookupError(f"the entry {name} does not say how lint detects it")
    return replace(
        found,
        severity=seen.severity or found.severity,
        title=seen.title or found.title,
        how_seen=seen.how_seen,
        remedy=seen.remedy or found.remedy,
    )
