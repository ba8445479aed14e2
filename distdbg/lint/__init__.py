"""One file for each rule, found by listing the folders. Pure: text in, findings out; nothing is run or imported.

A rule is a module with a function `check`, from Context to an iterable of Hit, and `NEEDS`, the words without which a
text cannot concern it. Its file is called as the id of its
finding, whose entry of the catalogue (distdbg/findings/) says what the hits have in common. `script/` holds what rules
can ask of a script.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache
from typing import TYPE_CHECKING

from distdbg.findings import lint_entry

if TYPE_CHECKING:
    from distdbg.lint.rule import LintRule
    from distdbg.model import FindingDoc

#: Folders of rules.
FAMILIES = ("parallel", "slow", "training")


@lru_cache(maxsize=1)
def _names() -> tuple[tuple[str, str], ...]:
    """(name, family) of every rule, by name; none is imported."""
    folders = ((family, [f"{path}/{family}" for path in __path__]) for family in FAMILIES)
    return tuple(sorted((m.name, family) for family, paths in folders for m in pkgutil.iter_modules(paths)))


@lru_cache(maxsize=1)
def all_rules() -> tuple[LintRule, ...]:
    """Every rule, by name."""
    from distdbg.lint.rule import LintRule

    modules = ((name, importlib.import_module(f"{__name__}.{family}.{name}")) for name, family in _names())
    return tuple(
        LintRule(
            _doc(name),
            module.NEEDS,
            module.check,
            unless=getattr(module, "UNLESS", None),
            fixes=getattr(module, "FIXES", False),
        )
        for name, module in modules
    )


def _doc(name: str) -> FindingDoc:
    return lint_entry(name.replace("_", "-"))


def fixable() -> frozenset[str]:
    """Ids of which some findings can be mended."""
    return frozenset(rule.doc.id for rule in all_rules() if rule.fixes)


def docs() -> tuple[FindingDoc, ...]:
    """The documentation of every rule; no rule is imported for it."""
    return tuple(_doc(name) for name, _ in _names())
