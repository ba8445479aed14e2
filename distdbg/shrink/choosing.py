"""Choose the layers to keep: one of each kind, first, last or both ends, or those that a person names."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.errors import UsageError

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
    """Layers to keep, rising. `kinds`: the kind of each layer. `number`: how many, None for what kinds need.

    `where`: `kinds`, `first`, `last`, `ends`, or layer numbers (`0,1,46,47`). `needed`: layers that must be among them.

    Raises UsageError where the stack has fewer, or where a number is no layer.
    """
    total = len(kinds)
    if where not in ("kinds", "first", "last", "ends"):
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


def _named(where: str, total: int, name: str) -> list[int]:
    try:
        layers = [int(part) for part in where.split(",")]
    except ValueError:
        raise UsageError(
            f"--keep {where!r} is no list of layers", "Write first, last, ends, or numbers: 0,1,46,47."
        ) from None
    layers = [n + total if n < 0 else n for n in layers]
    wrong = [n for n in layers if not 0 <= n < total]
    if wrong or layers != sorted(set(layers)):
        why = f"{name} has the layers 0 to {total - 1}" if wrong else "each layer is named once, in rising order"
        raise UsageError(f"--keep {where}: {why}", "Write rising numbers: 0,1,46,47.")
    return layers
