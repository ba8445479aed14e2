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
from distdbg.model import Finding, FindingDoc


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
