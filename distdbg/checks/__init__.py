"""One file a check, found by listing this folder. Pure: evidence in, findings out.

A check is a module with
    DOCS   a tuple of FindingDoc, one for each id that it can give
    check  a function from RunEvidence to an iterable of Finding
No list is edited: a new file here is a new check.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc, Unknown


@dataclass(frozen=True)
class Check:
    name: str
    docs: tuple[FindingDoc, ...]
    run: Callable[[RunEvidence], Iterable[Finding]]


def all_checks() -> list[Check]:
    """Every check in this folder, by name."""
    modules = (
        importlib.import_module(f"{__name__}.{m.name}")
        for m in pkgutil.iter_modules(__path__)
        if not m.name.startswith("_")
    )
    return [Check(m.__name__.rpartition(".")[2], tuple(m.DOCS), m.check) for m in modules]


def run_checks(evidence: RunEvidence) -> tuple[list[Finding], list[Unknown]]:
    """What all of them find. One that fails costs the others nothing, and what it would have found is unknown."""
    found: list[Finding] = []
    failed = [unknown for check in all_checks() if (unknown := _run(check, evidence, found)) is not None]
    return found, failed


def _run(check: Check, evidence: RunEvidence, found: list[Finding]) -> Unknown | None:
    try:
        found += check.run(evidence)
    except Exception as error:
        ids = ", ".join(doc.id for doc in check.docs)
        return Unknown(ids, f"check {check.name} failed: {error!r}; please report it")
    return None
