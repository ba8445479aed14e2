"""Find the leaves of a config that decide a stack's number of layers: each is changed alone, and the model compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from distdbg.plain_text import whole_number
from distdbg.shrink.checkpoint.config_file import LAYER_WORDS
from distdbg.shrink.checkpoint.config_leaves import (
    Config,
    Path,
    changed,
    counts_lists,
    dotted,
    integers,
    picked,
    section_of,
    sections,
    sequences,
    value_at,
)
from distdbg.shrink.probe.building import Anatomy, Builder, reason
from distdbg.shrink.probe.kinds import is_resized

#: a layer is made of at least this many modules with parameters; a head or a convolution of fewer
_PARTS_OF_A_LAYER = 3


@dataclass(frozen=True)
class StackGroup:
    """Stacks that the same leaf resizes.

    leaf: the integer that counts the layers, None where lists alone do. lists: sequences with an entry a layer that
    had to be cut with it. stacks: module paths, the leading one first. layers: how many it has now. counts: the list
    that counts them stage by stage, where all stages lie in one stack. also: integers that must equal the leaf.
    """

    leaf: Path | None
    section: Path
    lists: tuple[Path, ...]
    stacks: tuple[str, ...]
    layers: int
    counts: Path | None = None
    also: tuple[Path, ...] = ()

    @property
    def drivers(self) -> tuple[Path, ...]:
        """The fields of the config that decide how many layers there are."""
        return (self.leaf,) if self.leaf is not None else self.lists or (self.counts or (),)

    @property
    def owns_section(self) -> bool:
        """Whether lists beside the leaf can be about this stack. One stage's count (`depths[2]`) has no such lists."""
        return self.leaf is None or isinstance(self.leaf[-1], str)


def layer_lists(anatomy: Anatomy) -> dict[str, int]:
    """Module lists whose children look like layers: several modules with parameters of their own in each."""
    owners: dict[str, set[str]] = defaultdict(set)
    for name in anatomy.tensors:
        owner = name.rpartition(".")[0]
        for path in _above(owner):
            owners[path].add(owner)
    return {
        path: count
        for path, count in anatomy.lists.items()
        if count and max(len(owners[f"{path}.{i}"]) for i in range(count)) >= _PARTS_OF_A_LAYER
    }


def find_groups(builder: Builder) -> tuple[list[StackGroup], list[str]]:
    """(groups of stacks, some inside others; outermost lists of layers that nothing in the config resizes)."""
    full = builder.whole
    candidates = layer_lists(full)
    groups: list[StackGroup] = []
    counts = set(candidates.values())
    leaves = [(path, value) for path, value in integers(builder.full) if value in counts]
    # those first whose name says that they count layers: the order only saves builds
    for leaf, count in sorted(leaves, key=lambda f: not _is_named_so(f[0])):
        group = _try_leaf(builder, full, candidates, leaf, count)
        if group is not None and not any(set(group.stacks) & set(g.stacks) for g in groups):
            groups.append(group)
    for path, count in candidates.items():
        if count > 1 and not any(_are_nested(path, s) for g in groups for s in g.stacks):
            group = _try_lists(builder, full, candidates, path, count)
            group = group or _try_counts(builder, full, candidates, path, count)
            if group is not None:
                groups.append(group)
    driven = {s for g in groups for s in g.stacks}
    outermost = [p for p in candidates if not any(_is_below(p, q) for q in candidates)]
    return groups, [p for p in outermost if not any(_are_nested(p, s) for s in driven)]


def why_not_counted(builder: Builder, path: str) -> str:
    """For a list that looks like a stack: what its length follows from, and why that does not count its layers."""
    full, config = builder.whole, builder.full
    count = full.lists[path]
    fields = []
    for leaf, value in integers(config):
        found = builder.anatomy(changed(config, {leaf: value - 1}))
        if not isinstance(found, Exception) and found.lists.get(path, count) != count:
            fields.append(dotted(leaf))
    has = f"{path!r} has {count} of them"
    if fields:
        return f"{has}, which follows from {', '.join(fields[:4])}, but not one by one"
    for leaf in (leaf for section in sections(config) for leaf in sequences(config, section, count)):
        cut, left = f"without the last entry of {dotted(leaf)}", range(count - 1)
        edits = companions(config, leaf[:-1], count, left) | {leaf: picked(value_at(config, leaf), count, left)}
        found = builder.anatomy(changed(config, edits))
        if isinstance(found, Exception):
            return f"{has}, and {cut} it is refused: {reason(found)}"
        if found.lists.get(path) != count:
            beside, after = full.outside(frozenset({path})), found.outside(frozenset({path}))
            other = next((name for name, shape in beside.items() if after.get(name) != shape), f"more of {path!r}")
            return f"{has}, and {cut} {other} would be another, too"
    return f"{has}, and no number and no list of that length in it changes this"


def _try_leaf(builder: Builder, full: Anatomy, candidates: dict[str, int], leaf: Path, count: int) -> StackGroup | None:
    less = count - 1 if count > 1 else 2
    section = section_of(leaf)
    if isinstance(leaf[-1], int):
        alone = changed(builder.full, {leaf: less})
    else:
        alone = changed(builder.full, {leaf: less} | companions(builder.full, section, count, range(less)))
    stacks = _resized(builder, full, alone, candidates, count=count, less=less)
    if stacks:
        blocks = _in_blocks(full, builder.anatomy(alone), stacks, count)
        beside = [p for p in candidates if not any(_are_nested(p, s) for s in stacks)]
        if blocks and beside and _reshapes(builder, alone, beside, unknown=not _is_named_so(leaf)):
            return None
        return StackGroup(leaf, section, (), stacks, count)
    if not isinstance(builder.anatomy(alone), Exception) or isinstance(leaf[-1], int):
        return None
    # Refused alone. With the lists that have an entry a layer it may be taken; lists alone are the control experiment.
    for place in dict.fromkeys((section, *sections(builder.full))):
        lists = tuple(sequences(builder.full, place, count))
        if not lists or place[: len(section)] != section:
            continue
        for order, also in product(_orders(count, less), dict.fromkeys(((), _equal_to(builder, leaf, count)))):
            cut = changed(_with_lists(builder.full, lists, count, order), dict.fromkeys(also, less))
            both = changed(cut, {leaf: less} | companions(builder.full, section, count, order))
            stacks = _resized(builder, full, both, candidates, count=count, less=less)
            if stacks and not _resized(builder, full, cut, candidates, count=count, less=less):
                return StackGroup(leaf, section, lists, stacks, count, also=also)
    return None


def _equal_to(builder: Builder, leaf: Path, count: int) -> tuple[Path, ...]:
    """Integers beside the leaf that are equal to it and are named as numbers of layers."""
    numbers = ((path, value) for path, value in integers(builder.full) if path[:-1] == leaf[:-1] and path != leaf)
    return tuple(path for path, value in numbers if value == count and _is_named_so(path))


def _is_named_so(leaf: Path) -> bool:
    return any(word in str(leaf) for word in LAYER_WORDS)


def _in_blocks(full: Anatomy, found: Anatomy | Exception, stacks: Sequence[str], count: int) -> bool:
    """Whether a tensor that is in no layer of the stacks has several entries for each of them."""
    if isinstance(found, Exception):
        return False
    after = found.outside(frozenset(stacks))
    shapes = ((shape, after.get(name, shape)) for name, shape in full.outside(frozenset(stacks)).items())
    return any(a != b and a > count for shape, new in shapes for a, b in zip(shape, new, strict=False))


def _reshapes(builder: Builder, values: Config, beside: Sequence[str], *, unknown: bool) -> bool:
    """Whether the layers of other stacks get something else to work on: then what is counted is no layers, but copies
    of the input (`group_detr`, groups of queries). `unknown` where the model does not run."""
    from distdbg.shrink.verify.inputs import inputs_for
    from distdbg.shrink.verify.measuring import measure

    paths = [f"{path}.{i}" for path in beside for i in range(builder.whole.lists[path])]
    try:
        # in training: groups of queries are copies of the input there alone
        models = [builder.with_constant_weights(config).train() for config in (builder.full, values)]
        inputs = inputs_for(models[0])
        before, after = (measure(m, {p: m.get_submodule(p) for p in paths}, **inputs) for m in models)
    except Exception:
        return unknown
    return any(before[path].ops != after[path].ops for path in paths)


def _orders(count: int, less: int) -> list[list[int]]:
    """The last layer away, or the first: some models insist on what their last layer is."""
    return [list(range(less)), list(range(1, count))] if less < count else [[0] * less]


def _try_lists(builder: Builder, full: Anatomy, candidates: dict[str, int], path: str, count: int) -> StackGroup | None:
    for section in sections(builder.full):
        lists = tuple(sequences(builder.full, section, count))
        for chosen in (*((one,) for one in lists), lists):
            cut = _with_lists(builder.full, chosen, count, range(count - 1))
            # a length that the config keeps beside its lists is brought in line with them
            numbers = {p: count - 1 for p, v in integers(builder.full) if v == count and p[:-1] == section}
            for values in (cut, changed(cut, numbers)) if chosen else ():
                stacks = _resized(builder, full, values, candidates, count=count, less=count - 1)
                if path in stacks:
                    leaf = next(iter(numbers), None) if values is not cut else None
                    return StackGroup(leaf, section, chosen, stacks, count)
    return None


def _try_counts(
    builder: Builder, full: Anatomy, candidates: dict[str, int], path: str, count: int
) -> StackGroup | None:
    """One layer less in any stage of several is one layer less in the stack (`blocks_per_stage` of SAM 2)."""
    for counts in counts_lists(builder.full, count):
        stages = value_at(builder.full, counts)
        shorter = [changed(builder.full, {(*counts, i): n - 1}) for i, n in enumerate(stages) if n > 1]
        tried = [_resized(builder, full, values, candidates, count=count, less=count - 1) for values in shorter]
        if tried and path in tried[0] and len(set(tried)) == 1:
            return StackGroup(None, section_of((*counts, 0)), (), tried[0], count, counts)
    return None


def _with_lists(config: Config, lists: tuple[Path, ...], count: int, order: Sequence[int]) -> Config:
    return changed(config, {path: picked(value_at(config, path), count, order) for path in lists})


def _resized(
    builder: Builder, full: Anatomy, values: Config, candidates: dict[str, int], *, count: int, less: int
) -> tuple[str, ...]:
    """The stacks that this change, and nothing but them, made shorter; empty where it did anything else."""
    found = builder.anatomy(values)
    if isinstance(found, Exception):
        return ()
    stacks = [p for p, n in candidates.items() if n == count and found.lists.get(p) == less]
    stacks = [s for s in stacks if not any(_is_below(s, other) for other in stacks)]
    moved = frozenset(p for p, n in full.lists.items() if found.lists.get(p) != n)
    if not stacks or not _same_outside(full, found, moved, count, less) or not _same_inside(full, found, stacks, count):
        return ()
    return tuple(stacks)


def _same_outside(full: Anatomy, found: Anatomy, moved: frozenset[str], count: int, less: int) -> bool:
    """Whether all shapes outside the moved lists are unchanged, except for sizes that are the number of layers."""
    before, after = full.outside(moved), found.outside(moved)
    for name, shape in before.items():
        new = after.get(name)
        if new is None or not (new == shape or is_resized(shape, new, count, less)):
            return False
    return True


def _same_inside(full: Anatomy, found: Anatomy, stacks: list[str], count: int) -> bool:
    """No tensor of a layer has a shape that its namesakes in the full model have not."""
    for stack in stacks:
        known: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for name, (shape, _) in full.tensors.items():
            if name.startswith(f"{stack}."):
                known[name[len(stack) + 1 :].partition(".")[2]].add(shape)
        for name, (shape, _) in found.tensors.items():
            if name.startswith(f"{stack}."):
                shapes = known.get(name[len(stack) + 1 :].partition(".")[2], set())
                if shape not in shapes and not any(len(s) == len(shape) and count in s for s in shapes):
                    return False
    return True


def _are_nested(path: str, other: str) -> bool:
    """Are they the same, or one inside the other?"""
    return path == other or _is_below(path, other) or _is_below(other, path)


def inside_of(group: StackGroup, other: StackGroup) -> bool:
    """Whether the lists of one are in the layers of the other."""
    return any(_is_below(group.stacks[0], s) for s in other.stacks)


def _is_below(path: str, other: str) -> bool:
    return path.startswith(f"{other}.")


def _above(path: str) -> Iterator[str]:
    parts = path.split(".")
    return (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def companions(config: Config, section: Path, layers: int, keep: Sequence[int]) -> dict[Path, Any]:
    """Further edits for a leaf that counts `layers`, of which `keep` remain."""
    return _per_layer_configs(config, section, layers, keep) | _stage_names(config, section, layers, keep)


def is_stage_list(path: Path) -> bool:
    return str(path[-1]) in ("stage_names", "out_features", "out_indices")


def _per_layer_configs(config: Config, section: Path, layers: int, keep: Sequence[int]) -> dict[Path, Any]:
    """`per_layer_config` gives settings by layer number."""
    beside = value_at(config, section).get("per_layer_config")
    if not isinstance(beside, dict):
        return {}
    settings = {whole_number(str(key)): value for key, value in beside.items()}
    if not settings or not all(layer is not None and layer < layers for layer in settings):
        return {}
    kept = {str(new): settings[old] for new, old in enumerate(keep) if old in settings}
    return {(*section, "per_layer_config"): kept}


def _stage_names(config: Config, section: Path, layers: int, keep: Sequence[int]) -> dict[Path, Any]:
    """A backbone's stages are its stem and its layers, and some are its outputs (transformers' BackboneConfigMixin).

    An output at a layer that is not kept moves to the nearest kept one before it.
    """
    beside = value_at(config, section)
    names = beside.get("stage_names")
    if not isinstance(names, list) or len(names) != layers + 1:
        return {}
    new_names = names[: len(keep) + 1]
    outputs = [i % len(names) for i in beside.get("out_indices") or [] if type(i) is int]
    moved = sorted({sum(1 for k in keep if k < i) for i in outputs})
    edits: dict[Path, Any] = {(*section, "stage_names"): new_names}
    if outputs:
        edits |= {(*section, "out_indices"): moved, (*section, "out_features"): [new_names[i] for i in moved]}
    return edits
