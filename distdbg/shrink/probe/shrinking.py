"""From a model and what is wanted of it to a small config that is proven to make the same layers.

For each stack several choices of layers are tried: the layers as chosen; with the layers that something outside taps;
with thresholds (`first_k_dense_replace`) moved to where they fall among the kept layers; at last the shortest prefix
that has all kinds, which keeps periods and offsets true. The first faithful one counts; without one the stack is
refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from distdbg.errors import Refused, UsageError
from distdbg.shrink.checkpoint.config_leaves import changed, dotted, entries, integers, section_of, value_at
from distdbg.shrink.choosing import ENDS, LEAST, chosen_layers, order_warning, shortest_prefix
from distdbg.shrink.probe.building import Anatomy, Builder
from distdbg.shrink.probe.controls import StackGroup, find_groups, inside_of, why_not_counted
from distdbg.shrink.probe.edits import Edits, edits_for, followers, index_roles, lists_a_layer, stage_starts
from distdbg.shrink.probe.kinds import Counting, Fingerprint, counting, fingerprints, is_resized, kind_of, same


@dataclass(frozen=True)
class WantedLayers:
    """layers: a number for every stack, None for what its kinds need. stacks: numbers for some, by a part of a name."""

    layers: int | None = None
    keep: str = "kinds"
    stacks: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Stack:
    """A group of stacks, its kinds, and in the end what is kept of it."""

    group: StackGroup
    kinds: list[int]
    numbers: dict[str, Counting]
    prints: dict[str, list[Fingerprint]]
    lists: list[Any]
    kind_lists: list[Any]
    tap_lists: list[Any]
    taps: list[int]
    kept: list[int] = field(default_factory=list)
    edits: Edits = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.group.stacks[0]


@dataclass
class ShrunkModel:
    """The small config (`edits` to the full one), what became of each stack, and what a person should know."""

    stacks: list[Stack]
    edits: Edits
    full: Anatomy
    small: Anatomy
    warnings: list[str]


def shrink(builder: Builder, wanted: WantedLayers) -> ShrunkModel:
    """Raises Refused where no faithful shrink was found, UsageError where what is wanted does not fit the model."""
    full = builder.whole
    groups, rest = find_groups(builder)
    if not groups:
        raise Refused(
            "nothing in the config counts the model's layers: "
            + (why_not_counted(builder, rest[0]) if rest else "it has no stack of layers"),
            "Use it whole, or write a small config by hand and build that with transformers.",
        )
    stacks = _outermost(builder, full, groups)
    # A list of modules with one for each tapped layer follows the taps, and is no stack of its own.
    tapped = {path for stack in stacks for path in stack.tap_lists}
    stacks = [s for s in stacks if s.group.leaf is not None or not tapped & set(s.group.lists)]
    _refuse_unknown(stacks, wanted)
    warnings = [f"{path} has {full.lists[path]} layers that no field of the config counts: kept whole" for path in rest]
    edits: Edits = {}
    for stack in stacks:
        _choose_layers(builder, stack, wanted, stacks=stacks, others=edits, warnings=warnings)
        edits |= stack.edits
    small = builder.anatomy(changed(builder.full, edits))
    if isinstance(small, Exception):
        raise Refused(f"the stacks shrink one by one but not together: {small}", "Name the stacks with --stack.")
    for stack in stacks:
        problem = _problem_inside(small, stack, stack.kept)
        if problem:
            raise Refused(f"the stacks shrink one by one but not together: {problem}", "Name the stacks with --stack.")
    warnings += _numbers_that_moved(full, small, stacks)
    return ShrunkModel(stacks, edits, full, small, warnings)


def _outermost(builder: Builder, full: Anatomy, groups: list[StackGroup]) -> list[Stack]:
    """Lists inside a layer, such as experts, shrink with that layer's stack and not on their own.

    But where no two layers are alike (a backbone's stages), it is what is inside of them that can shrink.
    """
    found: list[Stack] = []
    todo = [g for g in groups if not any(inside_of(g, other) for other in groups if other is not g)]
    while todo:
        stack = _look(builder, full, todo.pop(0))
        inner = [g for g in groups if inside_of(g, stack.group)]
        if inner and len(set(stack.kinds)) == stack.group.layers:
            todo += [g for g in inner if not any(inside_of(g, other) for other in inner if other is not g)]
        else:
            found.append(stack)
    return found


def _look(builder: Builder, full: Anatomy, group: StackGroup) -> Stack:
    prints = {path: fingerprints(full, path) for path in group.stacks}
    numbers = {path: counting(p) for path, p in prints.items()}
    lists = lists_a_layer(builder, group)
    kind_lists, possible_taps = index_roles(builder, group)
    marks = [entries(value_at(builder.full, path), group.layers) for path in lists]
    # A number that is another in nearly every layer (a rate that rises) makes no kinds.
    marks = [m for m in marks if len({repr(v) for v in m}) <= max(2, group.layers // 2)]
    members = [value_at(builder.full, path) for path in kind_lists]
    whole = []
    for i in range(group.layers):
        own = [kind_of(prints[path][i], numbers[path]) for path in group.stacks]
        whole.append((*own, *(repr(m[i]) for m in marks), *(i in m for m in members)))
    order = list(dict.fromkeys(whole))
    needed = set(stage_starts(builder, group))  # a stage without a layer would be another model
    tap_lists = []
    for path in possible_taps:
        # Small numbers may be of another stack, or of stages: with the first layers kept they are right either way.
        last = max(value_at(builder.full, path))
        if last < max(4, group.layers // 2):
            needed |= set(range(last + 1))
        else:
            tap_lists.append(path)
    taps = sorted(needed | {i for path in tap_lists for i in value_at(builder.full, path)})
    return Stack(group, [order.index(w) for w in whole], numbers, prints, lists, kind_lists, tap_lists, taps)


def _choose_layers(
    builder: Builder,
    stack: Stack,
    wanted: WantedLayers,
    *,
    stacks: list[Stack],
    others: Edits,
    warnings: list[str],
) -> None:
    """Set what is kept of a stack and the edits for it, by the first candidate that is faithful."""
    number = _number_for(stack, wanted)
    why = ""
    taps = max((len(value_at(builder.full, p)) for s in stacks if s is not stack for p in s.tap_lists), default=0)
    leaves = [s.group.leaf for s in stacks]
    before = builder.anatomy(changed(builder.full, others))
    assert isinstance(before, Anatomy)
    for keep, lists in _candidates(stack, number, wanted.keep, max(LEAST, taps)):
        for extra in _thresholds(builder, stack, keep, leaves, rules=wanted.keep != "kinds"):
            edits = edits_for(builder, stack.group, keep, lists, [*stack.kind_lists, *stack.tap_lists]) | extra
            edits |= {p: v for p, v in followers(builder, stack.group, edits).items() if p not in leaves}
            twice = [dotted(p) for p, value in edits.items() if others.get(p, value) != value]
            found = builder.anatomy(changed(builder.full, others | edits))
            left = edits[stack.group.counts] if stack.group.counts is not None else ()
            problem = f"stage {left.index(0)} would have no layer" if 0 in left else ""
            if left and list(keep) != sorted(keep):
                problem = "its layers lie in stages, which have an order"
            problem = problem or (f"{twice[0]} names layers of another stack, too" if twice else "")
            problem = problem or _problem(before, found, stack, keep) or _problem_beside(before, found, stack, stacks)
            if not problem:
                stack.kept, stack.edits = list(keep), edits
                warnings += [*_lost_kinds(stack), *filter(None, [order_warning(stack.name, stack.kept)])]
                return
            why = why or problem
    rules = ", ".join(dotted(path) for path, _, rule in _rules(builder, stack, leaves) if rule)
    raise Refused(
        f"{stack.name} cannot be shrunk faithfully by {', '.join(map(dotted, stack.group.drivers))}: {why}"
        + (f"; what a layer is follows from {rules}, and no value was found with which these are what they were"
           if rules else ""),
        "Try other layers with --keep, or leave this stack whole with --stack.",
    )  # fmt: skip


def _candidates(
    stack: Stack, number: int | None, where: str, least: int
) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
    """(layers to keep, lists to cut), the best first.

    `least`: a stack may take in what another taps, one tap a layer; with fewer layers some would reach nothing.
    """
    layers = stack.group.layers
    if number is not None and number >= layers and where in ENDS:
        yield range(layers), stack.lists
        return
    minimal = chosen_layers(stack.kinds, number, where, name=stack.name, least=least)
    choices = [minimal]
    if where == "kinds" and stack.taps:
        choices.insert(0, chosen_layers(stack.kinds, number, where, needed=stack.taps, name=stack.name, least=least))
    if where == "kinds":
        choices.append(list(range(number)) if number else shortest_prefix(stack.kinds, stack.taps, least))
        if number is None:
            # a rule that counts from the end, or in blocks, may need a few layers more
            choices += [list(range(n)) for n in range(len(choices[-1]) + 1, min(len(choices[-1]) + 12, layers + 1))]
    for keep in choices:
        yield keep, stack.lists
        if len(stack.lists) > len(stack.group.lists):
            yield keep, stack.group.lists


def _thresholds(
    builder: Builder, stack: Stack, keep: Sequence[int], leaves: Sequence[Any], *, rules: bool
) -> Iterator[Edits]:
    """Nothing, then scalars that count layers from the front or the back moved to where they fall among the kept.

    rules: and, as of layers that were picked all may be of a rule (every second has experts) or none, 1 and more than
    there are.
    """
    yield {}
    layers = stack.group.layers
    if list(keep) == list(range(layers)):
        return
    places: list[list[tuple[Any, int]]] = []
    every: list[list[tuple[Any, int]]] = []
    for path, value, rule in _rules(builder, stack, leaves):
        front = sum(1 for k in keep if k < value)
        back = sum(1 for k in keep if k >= layers - value)
        options = [(path, n) for n in dict.fromkeys((value, front, back))]
        if len(options) > 1:
            places.append(options)
        every.append([(path, n) for n in dict.fromkeys((value, 1, len(keep) + 1) if rule else (value,))])
    for combination in [*list(product(*places))[1:64], *(list(product(*every))[1:64] if rules else ())]:
        yield {path: number for path, number in combination if value_at(builder.full, path) != number}


def _rules(builder: Builder, stack: Stack, leaves: Sequence[Any]) -> Iterator[tuple[Any, int, bool]]:
    """Scalars that may say which layers of the stack are what (thresholds, periods, offsets), and whether they do."""
    for path, value in integers(builder.full):
        if section_of(path) != stack.group.section or isinstance(path[-1], int) or path in leaves:
            continue
        if 0 < value <= stack.group.layers:
            touched = _touched(builder, stack, path, value)
            if touched is None or touched:
                yield path, value, touched is not None and len(touched) < stack.group.layers


def _touched(builder: Builder, stack: Stack, path: Any, value: int) -> set[str] | None:
    """Layers of the stack that become something else when this number alone is one less; none where anything beside
    them does; None where such a model is refused."""
    full, found = builder.whole, builder.anatomy(changed(builder.full, {path: value - 1}))
    if isinstance(found, Exception):
        return None
    moved = {p for p in {*full.modules, *found.modules} if full.modules.get(p) != found.modules.get(p)}
    inside = tuple(f"{path}." for path in stack.group.stacks)
    if not found.lists.keys() >= set(stack.group.stacks) or not all(p.startswith(inside) for p in moved):
        return set()
    return {p.removeprefix(start).partition(".")[0] for p in moved for start in inside if p.startswith(start)}


def _problem(before: Anatomy, found: Anatomy | Exception, stack: Stack, keep: Sequence[int]) -> str:
    """Why this small model's layers are not the full one's; empty where they are.

    `before`: the model as it was when this stack's turn came; what is in no layer of the stack is compared with that.
    """
    if isinstance(found, Exception):
        text = " ".join(str(found).split())
        return f"{type(found).__name__}: {text[:200]}"
    lost = set(stack.kinds) > {stack.kinds[i] for i in keep}
    return _problem_inside(found, stack, keep) or _problem_outside(before, found, stack, len(keep), lost=lost)


def _problem_inside(found: Anatomy, stack: Stack, keep: Sequence[int]) -> str:
    for path in stack.group.stacks:
        if found.lists.get(path) != len(keep):
            return f"{path} has {found.lists.get(path)} layers where {len(keep)} were asked for"
        for new, layer in enumerate(fingerprints(found, path)):
            off = same(stack.prints[path], layer, stack.numbers[path], keep, new)
            if off:
                return f"layer {new} would not be what layer {keep[new]} is: {'.'.join(p for p in off[0] if p)} differs"
    return ""


def _problem_outside(before: Anatomy, found: Anatomy, stack: Stack, left: int, *, lost: bool) -> str:
    """The same for what is in no layer of the stack: all of it is there, and as large as it was.

    Lists with an entry a layer become shorter with the stack. Where a kind of layers is `lost` on request, what served
    that kind alone may go with it.
    """
    layers = stack.group.layers
    moved = {p for p, n in before.lists.items() if is_resized((n,), (found.lists.get(p, 0),), layers, left)}
    after = found.outside(frozenset())
    for name, shape in before.outside(frozenset({*moved, *stack.group.stacks})).items():
        if name not in after:
            if lost:
                continue
            return f"{name} would be missing"
        new = after[name]
        if new != shape and not is_resized(shape, new, layers, left):
            return f"{name} would have the shape {new} and not {shape}"
    return ""


def _problem_beside(before: Anatomy, found: Anatomy | Exception, stack: Stack, stacks: list[Stack]) -> str:
    """A list beside the leaf may be as long as the stack and count the layers of another (EfficientLoFTR's stages)."""
    for path in (p for other in stacks if other is not stack for p in other.group.stacks):
        if not isinstance(found, Exception) and found.lists.get(path) != before.lists[path]:
            return f"{path} would have {found.lists.get(path)} layers and not {before.lists[path]}"
    return ""


def _number_for(stack: Stack, wanted: WantedLayers) -> int | None:
    for name, count in wanted.stacks.items():
        if answers_to(stack, name):
            return count
    return wanted.layers


def answers_to(stack: Stack, name: str) -> bool:
    """A stack is named by its path, by parts of it, or by the section of the config that counts it."""
    words = {part for path in stack.group.stacks for part in (*path.split("."), *path.replace("_", ".").split("."))}
    words |= {word for part in stack.group.section for word in (str(part), str(part).removesuffix("_config"))}
    if stack.group.leaf is not None:
        words |= set(str(stack.group.leaf[-1]).split("_")) | {dotted(stack.group.leaf)}
    return name in words or name in stack.group.stacks


def _refuse_unknown(stacks: list[Stack], wanted: WantedLayers) -> None:
    names = ", ".join(s.name for s in stacks)
    for name, number in wanted.stacks.items():
        found = [s for s in stacks if answers_to(s, name)]
        if len(found) != 1:
            many = f"{len(found)} stacks answer to it" if found else "no stack answers to it"
            raise UsageError(f"--stack {name}={number}: {many}", f"The stacks are: {names}.")
    asked = {s.name: _number_for(s, wanted) for s in stacks}
    largest = max(s.group.layers for s in stacks)
    if wanted.layers is not None and not wanted.stacks and wanted.layers > largest:
        raise UsageError(f"--layers {wanted.layers}: the longest stack has {largest} layers", f"Give 1 to {largest}.")
    for stack in stacks:
        asked_for = asked[stack.name]
        named = any(answers_to(stack, name) for name in wanted.stacks)
        if asked_for is not None and (asked_for < 1 or (named and asked_for > stack.group.layers)):
            many = f"{asked_for} layers of {stack.name} are wanted; it has {stack.group.layers}"
            raise UsageError(many, f"Give 1 to {stack.group.layers}.")


def _lost_kinds(stack: Stack) -> Iterator[str]:
    for kind in sorted(set(stack.kinds) - {stack.kinds[i] for i in stack.kept}):
        layers = [i for i, k in enumerate(stack.kinds) if k == kind]
        shown = ", ".join(map(str, layers[:6])) + (", …" if len(layers) > 6 else "")
        yield f"{stack.name}: the kind of layers {shown} is not kept; --layers auto keeps one of each kind"


def _numbers_that_moved(full: Anatomy, small: Anatomy, stacks: list[Stack]) -> list[str]:
    """Floating point attributes that were equal in every layer and are another number in the small model."""
    found: dict[str, str] = {}
    for stack in stacks:
        if len(stack.kept) == stack.group.layers:
            continue
        for (path, name), value in small.numbers.items():
            for start in (f"{s}." for s in stack.group.stacks):
                if path.startswith(start):
                    new, _, inner = path[len(start) :].partition(".")
                    old = full.numbers.get((f"{start}{stack.kept[int(new)]}.{inner}".rstrip("."), name))
                    if old is not None and old != value and not (math.isnan(old) and math.isnan(value)):
                        key = f"{stack.name}: {inner or 'the layer'}.{name}"
                        words = f"{key} is {value:g} where it was {old:g}: it depends on the number of layers"
                        found.setdefault(key, words)
    return list(found.values())
