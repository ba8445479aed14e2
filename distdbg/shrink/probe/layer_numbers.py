"""Compare the numbers in layers, which may follow from a layer's place or from how many layers there are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdbg.shrink.probe.building import Anatomy
from distdbg.shrink.probe.kinds import Counting, Fingerprint, by_place, fingerprints
from distdbg.shrink.probe.stack import Stack


def numbers_that_moved(full: Anatomy, small: Anatomy, stack: Stack, keep: Sequence[int]) -> dict[str, bool]:
    """Numbers in kept layers that are others in the small model, each attribute once: those with a fraction, and whole
    ones that are computed from the layer's number. In words, and whether the layer's place alone decides them."""
    found: dict[str, tuple[str, bool]] = {}
    if list(keep) == list(range(stack.group.layers)):
        return {}
    for path in stack.group.stacks:
        placed = by_place(stack.prints[path], stack.numbers[path])
        before = _numbers(full, path, stack.prints[path], placed)
        for new, layer in enumerate(_numbers(small, path, fingerprints(small, path), placed)):
            for (inner, name), value in layer.items():
                old = before[keep[new]].get((inner, name))
                if old is None or old == value or (math.isnan(old) and math.isnan(value)):
                    continue
                is_placed = before[new].get((inner, name)) == value
                follows = "the layer's place" if is_placed else "the number of layers"
                key = f"{stack.name}: {inner or 'the layer'}.{name}"
                found.setdefault(key, (f"{key} is {value:g} where it was {old:g}: it depends on {follows}", is_placed))
    return dict(found.values())


def _numbers(
    anatomy: Anatomy, path: str, prints: Sequence[Fingerprint], placed: Counting
) -> list[dict[tuple[str, str], float]]:
    """By layer: attribute -> number, of those with a fraction and of the whole ones in `placed`."""
    found = [{key: layer[key] for key in sorted(placed) if key in layer} for layer in prints]
    for (owner, name), value in anatomy.numbers.items():
        if owner.startswith(f"{path}."):
            number, _, inner = owner[len(path) + 1 :].partition(".")
            found[int(number)][inner, name] = value
    return found
