"""Choose the layers to keep: one of each kind, first, last or both ends, or those that a person names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from distdbg.errors import UsageError

ENDS = ("kinds", "first", "last", "ends")
_RANGE = re.compile(r"(-?\d{1,9})(?:-(-?\d{1,9}))?")
_END = re.compile(r"(first|last):(\d{1,9})")
#: fewer would leave nothing between layers to go wrong
LEAST = 2


def chosen_layers(
    kinds: Sequence[int],
    number: int | None,
    where: str,
    *,
    needed: Sequence[int] = (),
    name: str = "the model",
    least: int = LEAST,
) -> list[int]:
    """Layers to keep, in the order that they get. `kinds`: the kind of each layer. `number`: how many, None for what
    kinds need.

    `where`: `kinds`, `first`, `last`, `ends`, or a list (see `parse_keep`). `needed`: layers that must be among them.

    Raises UsageError where the stack has fewer, or where a number is no layer.
    """
    total = len(kinds)
    if where not in ENDS:
        return _named(where, total, name)
    if number is not None and number < 1:
        raise UsageError(f"--layers {number}: {name} needs at least one layer", "Give 1 or more, or 'auto'.")
    first = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    if number is None:
        must = sorted({*first, *needed})
        number = max(len(must), min(least, total))
    else:
        must = sorted({*needed})[:number] + [i for i in first if i not in needed]
    number = min(number, total)
    if where == "first":
        return list(range(number))
    if where == "last":
        return list(range(total - number, total))
    if where == "ends":
        return [*range((number + 1) // 2), *range(total - number // 2, total)]
    taken = list(dict.fromkeys(must))[:number]
    rest = (i for i in range(total) if i not in taken)
    return sorted([*taken, *(next(rest) for _ in range(number - len(taken)))])


def shortest_prefix(kinds: Sequence[int], needed: Sequence[int], least: int) -> list[int]:
    """The first layers up to one of each kind and all that are needed: periods and offsets stay true."""
    last = max([*(kinds.index(kind) for kind in set(kinds)), *needed, 0])
    return list(range(min(max(last + 1, least), len(kinds))))


def refuse_bad_syntax(where: str) -> None:
    """Raises UsageError where `--keep` is no word and no list, before a model is looked at."""
    if where not in ENDS:
        for part in where.split(","):
            if not _RANGE.fullmatch(part.strip()) and not _END.fullmatch(part.strip()):
                raise UsageError(
                    f"--keep {where!r} is no list of layers: {part.strip()!r} is no number, no range and no end",
                    "Write kinds, first, last, ends, or a list such as 0-3,-2,first:2,last:1.",
                )


def numbers_named(where: str) -> list[int]:
    """The layers that a list of `--keep` names, the bounds of ranges too; those counted from the end are below 0."""
    if where in ENDS:
        return []
    found = []
    for part in map(str.strip, where.split(",")):
        end = _END.fullmatch(part)
        if end is not None:
            found += [int(end[2]) - 1] if int(end[2]) else []
        elif pair := _RANGE.fullmatch(part):
            found += [int(text) for text in pair.groups() if text is not None]
    return found


def order_warning(name: str, kept: Sequence[int]) -> str:
    """What a person should know of layers that are kept several times or in another order; empty where none is."""
    listed = f"({', '.join(map(str, kept))})"
    turned = any(a > b for a, b in itertools.pairwise(kept))
    if len(set(kept)) < len(kept):
        also = ", and the layers are in another order than in the source" if turned else ""
        return f"{name}: a layer is kept several times {listed}, each with a copy of its weights{also}"
    if turned:
        return f"{name}: the layers are in another order than in the source {listed}"
    return ""


def _named(where: str, total: int, name: str) -> list[int]:
    """The layers of a list: `3`, `-2` (the last but one), `0-3`, `first:2`, `last:1`; with commas between them."""
    refuse_bad_syntax(where)
    parts = [part for text in where.split(",") if (part := _part(text.strip(), total))]
    if not parts or not all(0 <= bound < total for part in parts for bound in (part[0], part[-1])):
        raise UsageError(f"--keep {where}: {name} has the layers 0 to {total - 1}", "Name layers that there are.")
    layers = [layer for part in parts for layer in part]
    if layers != list(range(total)) and len(layers) == total:
        raise UsageError(
            f"--keep {where}: {name} would have {total} layers, as many as before, in another order",
            "Keep one less, or one more: what follows the number of layers is found by its change.",
        )
    return layers


def _part(part: str, total: int) -> range:
    end = _END.fullmatch(part)
    if end is not None:
        count = int(end[2])
        return range(count) if end[1] == "first" else range(total - count, total)
    found = _RANGE.fullmatch(part)
    assert found is not None
    first, last = (int(text) + total * (int(text) < 0) for text in (found[1], found[2] or found[1]))
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)
