"""Candidates for the layers to keep, and for the edits of the config that make them what they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import changed, integers, section_of, value_at
from distdbg.shrink.choosing import ENDS, chosen_layers, shortest_prefix
from distdbg.shrink.probe.building import Builder
from distdbg.shrink.probe.edits import Edits
from distdbg.shrink.probe.stack import Stack


def candidates(
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
        else:
            # the last layers of the stack are also the last of their kinds, as all layers of a small model may be
            choices.append(list(range(layers - number, layers)))
    for keep in choices:
        yield keep, stack.lists
        if len(stack.lists) > len(stack.group.lists):
            yield keep, stack.group.lists


def further_edits(
    builder: Builder, stack: Stack, keep: Sequence[int], leaves: Sequence[Any], *, rules: bool
) -> Iterator[Edits]:
    """Nothing, then lists that say what layers are in another way than with an entry for each, then thresholds."""
    yield {}
    if list(keep) == list(range(stack.group.layers)):
        return
    yield from _patterns(builder, stack, keep)
    yield from _thresholds(builder, stack, keep, leaves, rules=rules)


def _patterns(builder: Builder, stack: Stack, keep: Sequence[int]) -> Iterator[Edits]:
    """A list that repeats from layer to layer, with the entries of the kept ones; a list of the layers that each layer
    takes something from, with their new numbers."""
    layers = stack.group.layers
    for section in dict.fromkeys(((), stack.group.section)):
        for name, value in value_at(builder.full, section).items():
            if not isinstance(value, list) or not value or any(isinstance(v, dict | list) for v in value):
                continue
            if len(set(map(repr, value))) > 1 and 1 < len(value) < layers:
                yield {(*section, name): [value[old % len(value)] for old in keep]}
            if len(value) == layers and all(type(v) is int and 0 <= v < layers for v in value):
                sources = [value[old] for old in keep]
                if all(source in keep for source in sources):
                    yield {(*section, name): [list(keep).index(source) for source in sources]}


def names_sources(entries: Sequence[Any]) -> bool:
    """Whether each entry is the number of the layer that a layer takes something from: an earlier one that takes it
    from itself. A list of zeros and ones says something else."""
    numbers = [source for source in entries if type(source) is int]
    return (
        len(numbers) == len(entries)
        and len(set(numbers)) > 2
        and all(0 <= source <= layer and numbers[source] == source for layer, source in enumerate(numbers))
    )


def _thresholds(
    builder: Builder, stack: Stack, keep: Sequence[int], leaves: Sequence[Any], *, rules: bool
) -> Iterator[Edits]:
    """Scalars that count layers from the front or the back, moved to where they fall among the kept; and those that
    are the number of layers of a kind.

    rules: and, as of layers that were picked all may be of a rule (every second has experts) or none, 1 and more than
    there are.
    """
    layers = stack.group.layers
    places: list[list[tuple[Any, int]]] = []
    every: list[list[tuple[Any, int]]] = []
    # those that are rules come last, where they change first: the number of combinations is bounded
    for path, value, rule in sorted(rules_of(builder, stack, leaves), key=lambda found: found[2]):
        front = sum(1 for k in keep if k < value)
        back = sum(1 for k in keep if k >= layers - value)
        kinds = [kind for kind in sorted(set(stack.kinds)) if stack.kinds.count(kind) == value]
        of_kinds = [sum(stack.kinds[k] == kind for k in keep) for kind in kinds]
        options = [(path, n) for n in dict.fromkeys((value, front, back, *of_kinds))]
        if len(options) > 1:
            places.append(options)
        every.append([(path, n) for n in dict.fromkeys((value, 1, len(keep) + 1) if rule else (value,))])
    for combination in [*list(product(*places))[1:64], *(list(product(*every))[1:64] if rules else ())]:
        yield {path: number for path, number in combination if value_at(builder.full, path) != number}


def rules_of(builder: Builder, stack: Stack, leaves: Sequence[Any]) -> Iterator[tuple[Any, int, bool]]:
    """Scalars that may say which layers of the stack are what (thresholds, periods, offsets), and whether they do."""
    for path, value in integers(builder.full):
        if section_of(path) != stack.group.section or isinstance(path[-1], int) or path in leaves:
            continue
        if 0 < value <= stack.group.layers:
            touched = _touched(builder, stack, path, value)
            if touched is None or touched:
                yield path, value, touched is not None and len(touched) < stack.group.layers


def _touched(builder: Builder, stack: Stack, path: Any, value: int) -> set[str] | None:
    """Layers of the stack that become something else when this number alone is less; none where anything beside
    them does; None where such a model is refused."""
    full = builder.whole
    inside = tuple(f"{path}." for path in stack.group.stacks)
    for less in smaller(value):
        found = builder.anatomy(changed(builder.full, {path: less}))
        if isinstance(found, Exception):
            return None
        moved = {p for p in {*full.modules, *found.modules} if full.modules.get(p) != found.modules.get(p)}
        if not found.lists.keys() >= set(stack.group.stacks) or not all(p.startswith(inside) for p in moved):
            return set()
        if moved:
            return {p.removeprefix(start).partition(".")[0] for p in moved for start in inside if p.startswith(start)}
    return set()


def smaller(value: int) -> list[int]:
    """Values that show what a number decides: one less, and half, since one less may be rounded to the same."""
    return list(dict.fromkeys((value - 1, max(value // 2, 1))))
