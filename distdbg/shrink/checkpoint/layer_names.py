"""Find the part of tensor names that counts layers, and the new names of kept layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from distdbg.errors import Refused


def numbered_prefixes(names: Iterable[str]) -> dict[str, set[int]]:
    """Every dotted prefix that a number follows -> the numbers: `model.layers` -> {0, 1, …}.

    Numbers inside the prefix stay as they are: `encoder.stages.0.blocks` and `encoder.stages.1.blocks` are two.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for name in names:
        parts = name.split(".")
        for at, part in enumerate(parts):
            if part.isdecimal() and at:
                found[".".join(parts[:at])].add(int(part))
    return dict(found)


def match_stacks(stacks: Mapping[str, int], names: Iterable[str]) -> dict[str, str]:
    """A model's stacks (module path -> number of layers) to the prefixes that their layers have in a checkpoint.

    A checkpoint may prefix modules otherwise than the model does, and may hold more layers than the model reads
    (multi-token prediction is often stored as layer L). So a prefix qualifies by its numbers, 0 to L-1 at least,
    and wins by the path components that it shares with the module's, counted from the end.

    Raises Refused where a stack has no prefix or two equally good ones.
    """
    prefixes = {p: numbers for p, numbers in numbered_prefixes(names).items() if set(range(len(numbers))) == numbers}
    found: dict[str, str] = {}
    for path, layers in sorted(stacks.items(), key=lambda item: -len(item[0])):
        fitting = [p for p, numbers in prefixes.items() if len(numbers) >= layers and p not in found.values()]
        ranked = sorted(((_likeness(path, p, len(prefixes[p]) - layers), p) for p in fitting), reverse=True)
        if not ranked or ranked[0][0][0] == 0:
            raise Refused(
                f"no tensor of the checkpoint is named as the {layers} layers of {path!r} would be",
                "The weights belong to another model than the config, or name layers in a way that is not known.",
            )
        if len(ranked) > 1 and ranked[0][0] == ranked[1][0]:
            raise Refused(
                f"the layers of {path!r} could be {ranked[0][1]!r} or {ranked[1][1]!r} in the checkpoint",
                "Use --random to shrink the model without its weights.",
            )
        found[path] = ranked[0][1]
    return found


def renumbered(name: str, kept: Mapping[str, Sequence[int]]) -> str | None:
    """A tensor's new name, None where its layer is not kept; `kept` maps prefixes to the layers to keep, in order.

    Nested prefixes hold each in their own place: the outer one is renumbered too.
    """
    parts = name.split(".")
    new = list(parts)
    for at in range(1, len(parts)):
        layers = kept.get(".".join(parts[:at]))
        if layers is None or not parts[at].isdecimal():
            continue
        number = int(parts[at])
        if number not in layers:
            return None
        new[at] = str(list(layers).index(number))
    return ".".join(new)


def _likeness(path: str, prefix: str, surplus: int) -> tuple[int, int, int]:
    """(components equal from the end, components in common, minus surplus layers)"""
    a, b = path.split("."), prefix.split(".")
    same = 0
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x != y:
            break
        same += 1
    return same, len(set(a) & set(b)), -surplus
