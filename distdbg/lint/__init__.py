"""One file a rule, found by listing this folder. Pure: text in, findings out; nothing is run, imported or opened.

A rule is a module with
    DOCS   a tuple of FindingDoc, one for each id that it can give
    check  a function from Context to an iterable of Hit
No list is edited: a new file here is a new rule. What rules share stands in the files that begin with `_`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from distdbg.lint._rule import Rule
from distdbg.model import FindingDoc


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule in this folder, by name."""
    modules = (
        importlib.import_module(f"{__name__}.{m.name}")
        for m in pkgutil.iter_modules(__path__)
        if not m.name.startswith("_")
    )
    return tuple(Rule(m.__name__.rpartition(".")[2], tuple(m.DOCS), m.check) for m in modules)


def docs() -> tuple[FindingDoc, ...]:
    """The documentation of every id that a rule can give."""
    return tuple(doc for rule in all_rules() for doc in rule.docs)
