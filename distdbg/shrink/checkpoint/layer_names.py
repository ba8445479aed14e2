"""Find the part of tensor names that counts layers, and the new names of kept layers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

#: A number in a name. More digits count nothing, and Python converts no more than 4,300.
NUMBER = re.compile(r"(?<!\d)\d{1,18}(?!\d)", re.ASCII)


def number_of(part: str) -> int | None:
    """The number that a part of a dotted name is; None for any other part."""
    return int(part) if NUMBER.fullmatch(part) else None


def numbered_prefixes(names: Iterable[str]) -> dict[str, set[int]]:
    """Every dotted prefix that a number follows -> the numbers: `model.layers` -> {0, 1, …}.

    Numbers inside the prefix stay as they are: `encoder.stages.0.blocks` and `encoder.stages.1.blocks` are two.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for name in names:
        parts = name.split(".")
        for at, part in enumerate(parts):
            if at and (number := number_of(part)) is not None:
                found[".".join(parts[:at])].add(number)
    return dict(found)


def renumbered(name: str, kept: Mapping[str, Sequence[int]]) -> str | None:
    """A tensor's new name, None where its layer is not kept; `kept` maps prefixes to the layers to keep, in order.

    Nested prefixes hold each in their own place: the outer one is renumbered too.
    """
    return next(iter(all_renumbered(name, kept)), None)


def all_renumbered(name: str, kept: Mapping[str, Sequence[int]]) -> list[str]:
    """All new names: several where a layer is kept several times."""
    parts = name.split(".")
    choices = [[part] for part in parts]
    for at in range(1, len(parts)):
        layers = kept.get(".".join(parts[:at]))
        if layers is not None and (number := number_of(parts[at])) is not None:
            choices[at] = [str(new) for new, layer in enumerate(layers) if layer == number]
    return [".".join(chosen) for chosen in product(*choices)]
