"""One file for each rule, found by listing the folders. Pure: text in, findings out; nothing is run or imported.

A rule is a module with a function `check`, from Context to an iterable of Hit, and `NEEDS`, the words without which a
text cannot concern it. Its file is called as the id of its
finding, whose entry of the catalogue (distdbg/findings/) says what the hits have in common. `script/` holds what rules
can ask of a script. A rule of the folder `preview` has met no real mistake yet, and runs with `--preview`.
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
FAMILIES = ("parallel", "slow", "training", "preview")
#: The folder of the rules that run with `--preview` only.
PREVIEW = "preview"
#: Ids of rules that earlier versions had. Settings that ignore one of them remain valid.
REMOVED = frozenset((
    "autocast-dtypes-mixed", "batch-times-ranks", "checkpoint-not-atomic", "ddp-without-device-ids",
    "device-ids-on-cpu", "fsdp-dtype-mismatch",
    "fsdp-layer-left-out", "fsdp-single-unit", "full-state-dict-gather", "gather-object-of-tensors",
    "loader-lengths-differ", "loader-workers-restarted", "loss-outside-autocast", "mixed-devices",
    "param-in-two-groups", "params-without-grad", "transfer-in-loop", "warmup-too-long",
))  # fmt: skip


@lru_cache(maxsize=1)
def _names() -> tuple[tuple[str, str], ...]:
    """(name, family) of every rule, by name; none is imported."""
    folders = ((family, [f"{path}/{family}" for path in __path__]) for family in FAMILIES)
    return tuple(sorted((m.name, family) for family, paths in folders for m in pkgutil.iter_modules(paths)))


@lru_cache(maxsize=1)
def all_rules() -> tuple[LintRule, ...]:
    """Every rule, by name."""
    from distdbg.lint.rule import LintRule

    rules = []
    for name, family in _names():
        module = importlib.import_module(f"{__name__}.{family}.{name}")
        rule = LintRule(
            _doc(name),
            module.NEEDS,
            module.check,
            unless=getattr(module, "UNLESS", None),
            fixes=getattr(module, "FIXES", False),
            tier="preview" if family == PREVIEW else "stable",
            family=family,
            real_mistakes=getattr(module, "REAL_MISTAKES", 0),
        )
        rules.append(rule)
    return tuple(rules)


def _doc(name: str) -> FindingDoc:
    return lint_entry(name.replace("_", "-"))


def fixable() -> frozenset[str]:
    """Ids of which some findings can be mended."""
    return frozenset(rule.doc.id for rule in all_rules() if rule.fixes)


def stable_ids() -> frozenset[str]:
    """Ids of the rules that run by default; no rule is imported for it."""
    return frozenset(name.replace("_", "-") for name, family in _names() if family != PREVIEW)


def docs() -> tuple[FindingDoc, ...]:
    """The documentation of every rule; no rule is imported for it."""
    return tuple(_doc(name) for name, _ in _names())
