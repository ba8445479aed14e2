"""What has to change in a config so that a stack keeps only some of its layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from distdbg.shrink.config_leaves import (
    Config,
    Path,
    changed,
    index_lists,
    integers,
    picked,
    section_of,
    sequences,
    value_at,
)
from distdbg.shrink.probe.building import Anatomy, Builder
from distdbg.shrink.probe.controls import Group

Edits = dict[Path, Any]


def edits_for(
    builder: Builder, group: Group, keep: Sequence[int], lists: Sequence[Path], indices: Sequence[Path]
) -> Edits:
    """The leaf set, `lists` cut to an entry for each kept layer, `indices` renumbered."""
    config = builder.full
    edits: Edits = {}
    if group.leaf is not None:
        edits[group.leaf] = len(keep)
    for path in lists:
        edits[path] = picked(value_at(config, path), keep)
    for path in indices:
        edits[path] = [list(keep).index(i) for i in value_at(config, path) if i in keep]
    edits.update(_per_layer_configs(config, group, keep))
    edits.update(_stage_names(config, group, keep))
    return edits


def lists_a_layer(builder: Builder, group: Group) -> list[Path]:
    """Every sequence with an entry a layer, beside the leaf; those that had to be cut with it come first."""
    beside = sequences(builder.full, group.section, group.layers)
    return list(dict.fromkeys([*group.lists, *(p for p in beside if not _is_stage_list(p))]))


def followers(builder: Builder, group: Group, edits: Edits) -> Edits:
    """Integers beside the leaf that a config computes from it: set to what it makes of them when they are absent."""
    if group.leaf is None:
        return {}
    new = changed(builder.full, edits)
    found: Edits = {}
    for path, value in integers(builder.full):
        if path == group.leaf or section_of(path) != group.section or isinstance(path[-1], int):
            continue
        if value != group.layers:
            continue
        without = changed(new, {})
        del value_at(without, path[:-1])[path[-1]]
        try:
            made = value_at(builder.config(without).to_dict(), path)
        except Exception:
            continue
        if (
            made == len(edits.get(group.leaf, ()))
            if isinstance(edits.get(group.leaf), list)
            else made == edits[group.leaf]
        ):
            found[path] = made
    return found


def index_roles(builder: Builder, group: Group) -> tuple[list[Path], list[Path]]:
    """(index lists that name layers of a kind, those that tap layers for something outside the stack).

    Told by taking the last entry away and looking at what changes: only that layer, or another part of the model.
    """
    full = builder.anatomy(builder.full)
    assert not isinstance(full, Exception)
    kinds: list[Path] = []
    taps: list[Path] = []
    for path in index_lists(builder.full, group.section, group.layers):
        if _is_stage_list(path) or len(value_at(builder.full, path)) == group.layers:
            continue
        entries = value_at(builder.full, path)
        found = builder.anatomy(changed(builder.full, {path: entries[:-1]}))
        if isinstance(found, Exception):
            continue
        where = _where(full, found)
        if any(p.startswith(f"{s}.{entries[-1]}") for s in group.stacks for p in where) and all(
            any(p.startswith(f"{s}.") for s in group.stacks) for p in where
        ):
            kinds.append(path)
        elif where or _names_layers(path):
            taps.append(path)
    return kinds, taps


def _names_layers(path: Path) -> bool:
    """Nothing in the model's make tells whether a list names layers that only `forward` reads; its name may."""
    return bool(re.search(r"layer|ind(ex|ices)|block", str(path[-1])))


def _where(full: Anatomy, found: Anatomy) -> set[str]:
    """Module paths that differ."""
    a, b = full.modules, found.modules
    names = {p for p in {*a, *b} if a.get(p) != b.get(p)}
    shapes = {n for n in {*full.tensors, *found.tensors} if full.tensors.get(n) != found.tensors.get(n)}
    return names | shapes


def _per_layer_configs(config: Config, group: Group, keep: Sequence[int]) -> Edits:
    """`per_layer_config` gives settings by layer number."""
    beside = value_at(config, group.section).get("per_layer_config")
    if not isinstance(beside, dict) or not all(str(k).isdecimal() for k in beside):
        return {}
    by_number = {int(k): v for k, v in beside.items()}
    if not by_number or max(by_number) >= group.layers:
        return {}
    return {
        (*group.section, "per_layer_config"): {
            str(new): by_number[old] for new, old in enumerate(keep) if old in by_number
        }
    }


def _is_stage_list(path: Path) -> bool:
    return str(path[-1]) in ("stage_names", "out_features", "out_indices")


def _stage_names(config: Config, group: Group, keep: Sequence[int]) -> Edits:
    """A backbone's stages are its stem and its layers, and some are its outputs (transformers' BackboneConfigMixin).

    An output at a layer that is not kept moves to the next kept one before it.
    """
    beside = value_at(config, group.section)
    names = beside.get("stage_names")
    if not isinstance(names, list) or len(names) != group.layers + 1 or group.leaf is None:
        return {}
    new_names = names[: len(keep) + 1]
    outputs = [i % len(names) for i in beside.get("out_indices") or [] if type(i) is int]
    moved = sorted({sum(1 for k in keep if k < i) for i in outputs})
    section = group.section
    edits: Edits = {(*section, "stage_names"): new_names}
    if outputs:
        edits |= {(*section, "out_indices"): moved, (*section, "out_features"): [new_names[i] for i in moved]}
    return edits
