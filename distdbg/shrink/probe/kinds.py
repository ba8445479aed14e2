"""Layers of one kind: equal classes, shapes and plain attributes, whatever their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.shrink.probe.building import Anatomy

#: (what it is of, inside the layer) -> value
Fingerprint = dict[tuple[str, str], Any]


@dataclass(frozen=True)
class Counting:
    """Attributes of a stack's layers that say the layer's own number; they tell no kind."""

    names: frozenset[tuple[str, str]]


def fingerprints(anatomy: Anatomy, stack: str) -> list[Fingerprint]:
    """One a layer, of everything in it, its number included."""
    found: list[Fingerprint] = [{} for _ in range(anatomy.lists[stack])]
    start = f"{stack}."
    for path, (name, attributes) in anatomy.modules.items():
        if path.startswith(start):
            number, _, inner = path[len(start) :].partition(".")
            found[int(number)][inner, "class"] = name
            for key, value in attributes:
                found[int(number)][inner, key] = _without(value, number)
    for path, (shape, _) in anatomy.tensors.items():
        if path.startswith(start):
            number, _, inner = path[len(start) :].partition(".")
            found[int(number)][inner, "shape"] = shape
    return found


def counting(prints: Sequence[Fingerprint]) -> Counting:
    """Which attributes follow the layer's number: they grow by the same with every layer (`2 * layer_idx + 1` too)."""
    values: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    plain: set[tuple[str, str]] = set()
    for number, layer in enumerate(prints):
        for key, value in layer.items():
            if type(value) is int:
                values[key].append((number, value))
            elif key in values or value is not None:
                plain.add(key)
    return Counting(frozenset(key for key, points in values.items() if key not in plain and _rises(points)))


def _rises(points: Sequence[tuple[int, int]]) -> bool:
    """Values by layer number lie on a line that rises; one alone is the number itself."""
    (n0, v0), (n1, v1) = points[0], points[-1]
    if len(points) == 1:
        return n0 == v0
    slope = (v1 - v0) / (n1 - n0)
    return slope >= 1 and all(v - v0 == slope * (n - n0) for n, v in points)


def kind_of(layer: Fingerprint, numbers: Counting) -> tuple[Any, ...]:
    return tuple(sorted(((k, v) for k, v in layer.items() if k not in numbers.names), key=repr))


def same(full: Fingerprint, small: Fingerprint, numbers: Counting, layers: int, left: int) -> list[tuple[str, str]]:
    """What differs between a layer of the full model and the one that stands for it; empty where they are alike.

    An attribute that holds the stack's own length in both is no difference: it says how many layers there are.
    """
    missing = object()
    return [
        key
        for key in sorted({*full, *small})
        if key not in numbers.names
        and (a := full.get(key, missing)) != (b := small.get(key, missing))
        and not (type(a) is int and type(b) is int and key[1] != "shape" and a - layers == b - left)
        and not (key[1] == "shape" and is_resized(a, b, layers, left))
    ]


def is_resized(full: Any, small: Any, layers: int, left: int) -> bool:
    """A shape in which nothing changed but a size that is the number of layers, or a block for each of them, or one
    less: what stands between them."""
    if not isinstance(full, tuple) or not isinstance(small, tuple) or len(full) != len(small):
        return False
    return full != small and all(
        a == b or (a % layers == 0 and a // layers * left == b) or (a, b) == (layers - 1, left - 1)
        for a, b in zip(full, small, strict=True)
    )


def _without(value: Any, number: str) -> Any:
    """A name that holds the layer's number (`layers.3.mlp`) without it."""
    if not isinstance(value, str) or number not in value:
        return value
    return ".".join("#" if part == number else part for part in value.split("."))
