"""Group layers by kind: equal classes, shapes and plain attributes, whatever their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.shrink.checkpoint.layer_names import number_of
from distdbg.shrink.probe.building import Anatomy

#: (what it is of, inside the layer) -> value
Fingerprint = dict[tuple[str, str], Any]
#: attributes of a stack's layers that say the layer's own number; they tell no kind
Counting = frozenset[tuple[str, str]]


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
    return frozenset(key for key, points in values.items() if key not in plain and _rises(points))


def _rises(points: Sequence[tuple[int, int]]) -> bool:
    """Values by layer number lie on a line that rises; one alone is the number itself."""
    (n0, v0), (n1, v1) = points[0], points[-1]
    if len(points) == 1:
        return n0 == v0
    slope = (v1 - v0) / (n1 - n0)
    return slope >= 1 and all(v - v0 == slope * (n - n0) for n, v in points)


def by_place(prints: Sequence[Fingerprint], numbers: Counting) -> Counting:
    """Those of `numbers` that are computed from the layer's number (`2 * layer_idx + 1`), and are not that number."""
    found = set()
    for key in numbers:
        points = [(number, layer[key]) for number, layer in enumerate(prints) if key in layer]
        if len({value - number for number, value in points}) > 1:
            found.add(key)
    return frozenset(found)


def kind_of(layer: Fingerprint, numbers: Counting) -> tuple[Any, ...]:
    return tuple(sorted(((k, v) for k, v in layer.items() if k not in numbers), key=repr))


def same(
    before: Sequence[Fingerprint], small: Fingerprint, numbers: Counting, kept: Sequence[int], new: int
) -> list[tuple[str, str]]:
    """What differs between layer `new` of the small model and the one of the full model (`before`) that it stands for.

    Empty where they are alike. An attribute that holds the stack's own length in both is no difference: it says how
    many layers there are, or are of its class. A list with an entry for each of those has lost the same ones.
    """
    missing = object()
    uses = _uses(before, kept[new])
    left = [number for number, layer in enumerate(uses) if layer in kept]
    full = _with_entries(before[kept[new]], lists_a_use(before, small, kept, new))
    return [
        key
        for key in sorted({*full, *small})
        if key not in numbers
        and (a := full.get(key, missing)) != (b := small.get(key, missing))
        and not (type(a) is int and type(b) is int and key[1] != "shape" and a - len(before) == b - len(kept))
        and (a, b) != (len(uses), len(left))
        and not (key[1] == "shape" and is_resized(a, b, len(before), len(kept)))
    ]


def lists_a_use(
    before: Sequence[Fingerprint], small: Fingerprint, kept: Sequence[int], new: int
) -> dict[str, list[int]]:
    """Lists inside a layer with an entry for each layer of its class: what a block that layers share has for its uses.

    Path in the layer -> entries of the full model's list that the small one's are.
    """
    uses = _uses(before, kept[new])
    left = [number for number, layer in enumerate(uses) if layer in kept]
    if len(left) == len(uses):
        return {}
    there, here = _lists(before[kept[new]]), _lists(small)
    return {p: left for p, count in there.items() if count == len(uses) and here.get(p) == len(left)}


def _uses(before: Sequence[Fingerprint], layer: int) -> list[int]:
    """The layers of this layer's class."""
    return [i for i, one in enumerate(before) if one["", "class"] == before[layer]["", "class"]]


def _lists(layer: Fingerprint) -> dict[str, int]:
    """Paths that the numbers from 0 on follow, and how many of them."""
    numbered: dict[str, set[int]] = defaultdict(set)
    for inner, _ in layer:
        parts = inner.split(".")
        for at in range(1, len(parts)):
            if (number := number_of(parts[at])) is not None:
                numbered[".".join(parts[:at])].add(number)
    return {path: len(found) for path, found in numbered.items() if found == set(range(len(found)))}


def _with_entries(layer: Fingerprint, lists: Mapping[str, list[int]]) -> Fingerprint:
    """The layer with these entries of its lists alone, renumbered."""
    found: Fingerprint = {}
    for (inner, key), value in layer.items():
        path = next((p for p in lists if inner.startswith(f"{p}.")), None)
        if path is None:
            found[inner, key] = value
            continue
        number, dot, rest = inner[len(path) + 1 :].partition(".")
        if int(number) in lists[path]:
            found[f"{path}.{lists[path].index(int(number))}{dot}{rest}", key] = value
    return found


def entries_left(count: int, left: int, layers: int, kept: Sequence[int]) -> list[int] | None:
    """Which of `count` entries the `left` ones are, where `kept` of the `layers` stay: one or several a layer, or what
    stands between them; None where it is neither."""
    if (count, left) == (layers - 1, len(kept) - 1):
        return list(kept[:-1])  # each behind its layer
    each = count // layers
    if count % layers or each * len(kept) != left:
        return None
    return [layer * each + i for layer in kept for i in range(each)]


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
