"""Compute the changes of a config that make a stack keep only some of its layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from distdbg.shrink.checkpoint.config_file import LAYER_WORDS
from distdbg.shrink.checkpoint.config_leaves import (
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
from distdbg.shrink.probe.controls import StackGroup, companions, is_stage_list

Edits = dict[Path, Any]
#: names of lists: those that name layers; those that say what a layer is, where only `forward` reads them
_NAMES_LAYERS = re.compile(r"(^|_)(layers?|ind|idx|index(es)?|indices|blocks?|hooks?|ids)(_|$)")
_OF_A_KIND = re.compile(r"(^|_)(full|global|local|window|sliding|rope|nope|moe|mlp|dense|sparse)|att")
_SIZES = re.compile(r"(^|_)(kernels?|sizes?|strides?|dims?|channels|rates?|dilations?|ratios?|heads)(_|$)")


def edits_for(
    builder: Builder, group: StackGroup, keep: Sequence[int], lists: Sequence[Path], indices: Sequence[Path]
) -> Edits:
    """The leaf (or the counts of stages) set, `lists` cut to an entry for each kept layer, `indices` renumbered."""
    config = builder.full
    edits: Edits = {}
    if group.leaf is not None:
        edits |= dict.fromkeys((group.leaf, *group.also), len(keep))
    if group.counts is not None:
        edits[group.counts] = left_of_stages(value_at(config, group.counts), keep)
    for path in lists:
        edits[path] = picked(value_at(config, path), group.layers, keep)
    for path in indices:
        edits[path] = [new for old in value_at(config, path) for new, layer in enumerate(keep) if layer == old]
    if not group.owns_section:
        return edits
    return edits | companions(config, group.section, group.layers, keep)


def stage_starts(builder: Builder, group: StackGroup) -> list[int]:
    """The first layer of each stage, where a list counts them stage by stage."""
    return [0, *accumulate(value_at(builder.full, group.counts))][:-1] if group.counts is not None else []


def layers_named_from_ends(builder: Builder, group: StackGroup) -> set[int]:
    """Layers behind one whose states are taken by its distance from the end (`vision_feature_layer: -2`), and all that
    follow: if they are kept, the distance stays true. A list with such numbers may count from the front, too: then all
    layers before that place.

    The field is beside the leaf, or in a config around it under a name with the word of the section (`vision`).
    """
    if not group.owns_section:
        return set()
    words = {str(part).removesuffix("_config") for part in group.section}
    furthest, first = 1, 0
    for path, value in integers(builder.full):
        name = next(str(part) for part in reversed(path) if isinstance(part, str))
        section = section_of(path)
        is_around = section == group.section[: len(section)] and words & {*name.split("_")}
        if not (section == group.section or is_around) or not _names_a_layer(name):
            continue
        if -group.layers <= value < 0:
            furthest = max(furthest, -value)
        elif isinstance(path[-1], int) and min(value_at(builder.full, path[:-1])) < 0 <= value < group.layers:
            first = max(first, value)
    return {*range(first), *range(group.layers - furthest + 1, group.layers)}


def _names_a_layer(name: str) -> bool:
    """Whether a single number is a layer's, by its name: an index alone may be a label's (`ignore_index`)."""
    return any(word in name for word in LAYER_WORDS)


def left_of_stages(stages: Sequence[int], keep: Sequence[int]) -> list[int]:
    """How many of `keep` lie in each of the stages in a row: 0, 1, 5 of `[1, 2, 7, 2]` are 1, 1, 1, 0."""
    ends = list(accumulate(stages))
    return [sum(end - size <= layer < end for layer in keep) for size, end in zip(stages, ends, strict=True)]


def lists_a_layer(builder: Builder, group: StackGroup) -> list[Path]:
    """Every sequence with an entry a layer, beside the leaf; those that had to be cut with it come first."""
    if not group.owns_section:
        return list(group.lists)
    beside = sequences(builder.full, group.section, group.layers)
    return list(dict.fromkeys([*group.lists, *(p for p in beside if not is_stage_list(p))]))


def followers(builder: Builder, group: StackGroup, edits: Edits) -> Edits:
    """Integers beside the leaf that a config computes from it: set to what it makes of them when they are absent."""
    if group.leaf is None or edits[group.leaf] == group.layers:
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
        if made == edits[group.leaf]:
            found[path] = made
    return found


def index_roles(builder: Builder, group: StackGroup) -> tuple[list[Path], list[Path]]:
    """(index lists that name layers of a kind, those that tap layers for something outside the stack).

    Told by taking the last entry away and looking at what changes: only that layer, or another part of the model.
    """
    kinds: list[Path] = []
    taps: list[Path] = []
    if not group.owns_section:
        return kinds, taps
    for section in (group.section[:end] for end in range(len(group.section), -1, -1)):
        for path in index_lists(builder.full, section, group.layers):
            if is_stage_list(path) or len(value_at(builder.full, path)) == group.layers:
                continue
            role = _role(builder, group, path)
            if role == "kinds" and section == group.section:
                kinds.append(path)
            elif role == "taps" and (section == group.section or _NAMES_LAYERS.search(str(path[-1]))):
                taps.append(path)
    return kinds, taps


def _role(builder: Builder, group: StackGroup, path: Path) -> str:
    """`kinds`, `taps`, or nothing where the list names no layers of this stack."""
    full, entries = builder.whole, value_at(builder.full, path)
    found = builder.anatomy(changed(builder.full, {path: entries[:-1]}))
    if isinstance(found, Exception):  # it may have to be of a length
        other = next((i for i in range(group.layers) if i not in entries), entries[-1])
        found = builder.anatomy(changed(builder.full, {path: [*entries[:-1], other]}))
    if isinstance(found, Exception):
        return ""
    where = _where(full, found)
    last, inside = (tuple(f"{s}.{end}" for s in group.stacks) for end in (entries[-1], ""))
    if any(p.startswith(last) for p in where) and all(p.startswith(inside) for p in where):
        return "kinds"
    name = str(path[-1])
    if not _NAMES_LAYERS.search(name) or _SIZES.search(name):
        return ""
    # The model's construction does not show what a list says that only `forward` reads; its name may.
    return "kinds" if not where and _OF_A_KIND.search(name) else "taps"


def _where(full: Anatomy, found: Anatomy) -> set[str]:
    """Module paths that differ."""
    a, b = full.modules, found.modules
    names = {p for p in {*a, *b} if a.get(p) != b.get(p)}
    shapes = {n for n in {*full.tensors, *found.tensors} if full.tensors.get(n) != found.tensors.get(n)}
    return names | shapes
