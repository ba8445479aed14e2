"""The rules of the diagnosis: one file a rule, found by listing the rooms. Pure: evidence in, findings out.

A rule is a module with
    DOCS   the entries of the catalogue (distdbg/findings/), one for each id that it can give
    check  a function from RunEvidence to an iterable of Finding
A new file in a room is a new rule. A module whose name begins with `_` is shared by the rules of its room.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import distdbg.diagnosis
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc, Unknown

#: Folders of rules, in the order in which their rules run. The order of findings is decided by verdict.py alone.
ROOMS = ("hang", "death", "slow", "training", "parallel", "memory", "nodes")


@dataclass(frozen=True)
class Rule:
    room: str
    name: str
    docs: tuple[FindingDoc, ...]
    run: Callable[[RunEvidence], Iterable[Finding]]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by room and then by name."""
    found = []
    for room in ROOMS:
        folders = [f"{folder}/{room}" for folder in distdbg.diagnosis.__path__]
        for module in sorted(m.name for m in pkgutil.iter_modules(folders) if not m.name.startswith("_")):
            rule = importlib.import_module(f"distdbg.diagnosis.{room}.{module}")
            found.append(Rule(room, module, tuple(rule.DOCS), rule.check))
    return tuple(found)


def run_rules(evidence: RunEvidence) -> tuple[list[Finding], list[Unknown]]:
    """What all of them find. A rule that fails costs the others nothing: what it would have found is unknown."""
    found: list[Finding] = []
    failed = [unknown for rule in all_rules() if (unknown := _run(rule, evidence, found)) is not None]
    return found, failed


def _run(rule: Rule, evidence: RunEvidence, found: list[Finding]) -> Unknown | None:
    try:
        found += rule.run(evidence)
    except Exception as error:
        ids = ", ".join(doc.id for doc in rule.docs)
        return Unknown(ids, f"rule {rule.name} failed: {error!r}; please report it")
    return None
