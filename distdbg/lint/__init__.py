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

from distdbg.findings import lint_entry
from distdbg.lint.rule import LintRule
from distdbg.model import FindingDoc

#: Folders of rules.
FAMILIES = ("parallel", "slow", "training")


@lru_cache(maxsize=1)
def all_rules() -> tuple[LintRule, ...]:
    """Every rule, by name."""
    names = (
        (m.name, family) for family in FAMILIES for m in pkgutil.iter_modules([f"{path}/{family}" for path in __path__])
    )
    modules = ((name, importlib.import_module(f"{__name__}.{family}.{name}")) for name, family in sorted(names))
    return tuple(
        LintRule(
            lint_entry(name.replace("_", "-")),
            module.NEEDS,
            module.check,
            unless=getattr(module, "UNLESS", None),
            fixes=getattr(module, "FIXES", False),
        )
        for name, module in modules
    )


def fixable() -> frozenset[str]:
    """Ids of which some findings can be mended."""
    return frozenset(rule.doc.id for rule in all_rules() if rule.fixes)


def docs() -> tuple[FindingDoc, ...]:
    """The documentation of every rule."""
    return tuple(rule.doc for rule in all_rules())
