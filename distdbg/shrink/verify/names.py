"""Verify that each tensor of the small model is loaded from the tensor of the layer that it represents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.probe.building import Builder
from distdbg.shrink.probe.conversions import module_names
from distdbg.shrink.verify.kept import PASS, KeptStack


def compare_names(full: Builder, small: Builder, stacks: Sequence[KeptStack], task: Mapping[str, Any]) -> str:
    """`task`: origins (name in the small checkpoint -> name in the source), sources (all names there), tied (names of
    one tensor).

    Both are given to transformers' own conversion. A tensor of layer N in the small model must come from the tensor of
    the same name in layer `kept[N]` of the full one, and be used where that one is.
    """
    origins: Mapping[str, str] = task["origins"]
    large, little = full.bare, small.bare
    before, after = module_names(large, {*task["sources"]}), module_names(little, origins)
    there, here = large.state_dict(), little.state_dict()
    kept: dict[str, Sequence[int]] = {stack.path: stack.kept for stack in stacks}
    for stack in stacks:
        kept |= stack.entries
    aliases = {name: names for names in task["tied"] for name in names}
    given: set[str] = set()
    for new, old in origins.items():
        is_here, was_there = after[new], before[old]
        names = aliases.get(was_there, [was_there])
        expected = {found for name in names for found in all_renumbered(name, kept)}
        if is_here not in expected:
            return f"fail: {is_here} is loaded from {old!r} of the source, which is {was_there} in the full model"
        if (is_here in here) != (was_there in there):
            used = ("does not use", "uses") if was_there in there else ("uses", "does not use")
            return f"fail: the small model {used[0]} {new!r}; the full model {used[1]} {old!r}"
        given.add(is_here)
    for name in sorted({found for module in before.values() for found in all_renumbered(module, kept)} & here.keys()):
        if name not in given and not set(aliases.get(name, ())) & given:
            return f"fail: {name} is not in the small checkpoint"
    return _surplus(there, here, kept, aliases)


def lacking(full: Builder, stacks: Sequence[KeptStack], sources: Sequence[str]) -> set[str]:
    """Tensors of the small model for which the source has none: those of the full model are made anew, too."""
    model = full.bare
    given = {*module_names(model, sources).values()} if sources else {*model.state_dict()}
    kept = {stack.path: stack.kept for stack in stacks}
    return {new for name in model.state_dict() if name not in given for new in all_renumbered(name, kept)}


def _surplus(
    there: Mapping[str, Any], here: Mapping[str, Any], kept: Mapping[str, Sequence[int]],
    aliases: Mapping[str, Sequence[str]],
) -> str:  # fmt: skip
    known = {
        found for name in there for alias in (name, *aliases.get(name, ())) for found in all_renumbered(alias, kept)
    }
    surplus = sorted(here.keys() - known)
    return f"fail: the small model has {surplus[0]}, which the full one has not" if surplus else PASS
