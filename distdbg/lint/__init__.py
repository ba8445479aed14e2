"""One file a rule, found by listing the rooms. Pure: text in, findings out; nothing is run, imported or opened.

A rule is a module with
    DOCS   the entries of the catalogue (distdbg/findings/), one for each id that it can give
    check  a function from Context to an iterable of Hit
No list is edited: a new file in a room is a new rule. `script/` holds what rules can ask of a script.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from distdbg.lint.rule import Rule
from distdbg.model import FindingDoc

#: Folders of rules.
ROOMS = ("parallel", "slow", "training")


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by name."""
    names = ((m.name, room) for room in ROOMS for m in pkgutil.iter_modules([f"{path}/{room}" for path in __path__]))
    modules = (importlib.import_module(f"{__name__}.{room}.{name}") for name, room in sorted(names))
    return tuple(Rule(m.__name__.rpartition(".")[2], tuple(m.DOCS), m.check) for m in modules)


def docs() -> tuple[FindingDoc, ...]:
    """The documentation of every id that a rule can give."""
    return tuple(doc for rule in all_rules() for doc in rule.docs)
