"""Choose the layers of a checkpoint to keep without a model, from the names and shapes of its tensors alone.

The layer is the outermost number of a name, where the numbers of a prefix run from 0 without a gap; or, on request, a
row of tensors that hold all layers. Layers are of one kind when they have the same names, shapes and types. Names of
PyTorch, torchtitan, Megatron and PEFT fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.model import grouped
from distdbg.shrink.checkpoint.layer_names import numbered_prefixes
from distdbg.shrink.choosing import LEAST, chosen_layers

#: name -> (shape, type)
Forms = Mapping[str, tuple[tuple[int, ...], str]]
#: fewer tensors in a layer are a list of something else
_TENSORS_OF_A_LAYER = 2
#: layers that predict more tokens than the next one are no part of the stack (Megatron)
_NEXT_TOKENS = "mtp"


@dataclass(frozen=True)
class PlainOrder:
    """layers: a number, None for one of each kind. keep: see `choosing`. pattern: the prefix of a layer's number.
    gaps: not every layer has tensors (an adapter). together: Megatron wrote it, and one tensor may hold all layers."""

    layers: int | None = None
    keep: str = "kinds"
    pattern: str | None = None
    gaps: bool = False
    together: bool = False


def plain_stacks(forms: Forms, order: PlainOrder) -> list[dict[str, Any]]:
    """Stacks as shrink.json has them. Stacks of one length (a model's and its optimizer's) keep the same layers.

    With `order.gaps` (adapters, which are not in every layer) the numbers need not run on. Raises NothingToAnalyse
    where no prefix counts layers, UsageError where the pattern does not.
    """
    stacked = _stacked(forms, order)
    if stacked:
        return stacked
    prefixes = _layered(forms, order)
    by_length = grouped((max(numbers) + 1, prefix) for prefix, numbers in sorted(prefixes.items()))
    if order.layers is not None and order.layers > max(by_length):
        raise UsageError(f"--layers {order.layers}: the longest stack has {max(by_length)} layers", "Give fewer.")
    found: list[dict[str, Any]] = []
    for length, alike in sorted(by_length.items()):
        prints = [tuple(_print(forms, prefix, layer) for prefix in alike) for layer in range(length)]
        kinds = [list(dict.fromkeys(prints)).index(p) for p in prints]
        kept = chosen_layers(kinds, order.layers, order.keep, name=alike[0])
        found += [_as_json(prefix, kinds, kept) for prefix in alike]
    return found


def _as_json(prefix: str, kinds: Sequence[int], kept: list[int]) -> dict[str, Any]:
    of = [[i for i, k in enumerate(kinds) if k == kind] for kind in range(max(kinds) + 1)]
    of_kinds = [{"layers": layers, "kept": [i for i in layers if i in kept]} for layers in of]
    return {"path": prefix, "also": [], "layers": len(kinds), "kept": kept, "kinds": of_kinds, "fields": []}


def _stacked(forms: Forms, order: PlainOrder) -> list[dict[str, Any]]:
    """Stacks that have all layers in one tensor, one behind the other along its first dimension (Megatron's sharded
    checkpoints). Only Megatron's names, or the user, can distinguish them from other tensors."""
    given = _prefix(order)
    numbered = numbered_prefixes(forms)
    found: dict[str, dict[str, Any]] = {}
    for prefix in [given] if given is not None else sorted(_together(forms)) if order.together else []:
        layers = None if prefix in numbered else _rows(forms, prefix)
        if layers is None or layers < LEAST:
            continue
        ends = (f".{name}".find(f".{prefix}.") + len(prefix) for name in forms)
        alike = {name[:end] for name, end in zip(forms, ends, strict=True) if name[:end].endswith(prefix)}
        same = sorted(path for path in alike if _rows(forms, path) == layers)
        kept = chosen_layers([0] * layers, order.layers, order.keep, name=prefix)
        found |= {path: _as_json(path, [0] * layers, kept) | {"stacked": True} for path in same}
    return list(found.values())


def _together(forms: Forms) -> set[str]:
    """What comes before the parts of a layer that no number follows, in Megatron's names of a model."""
    found = (re.match(r"(?!optimizer\.)((?:.+?\.)?(?:encoder|decoder)\.layers)\.[^\d.]", name) for name in forms)
    return {match[1] for match in found if match}


def rows_kept(forms: Forms, stacks: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Tensors that hold all layers of a stack, and the rows of each that stay."""
    return {
        name: stack["kept"]
        for stack in stacks
        if stack.get("stacked")
        for name in forms
        if name.startswith(f"{stack['path']}.")
    }


def _rows(forms: Forms, prefix: str) -> int | None:
    """The first dimension of the tensors below, where all have the same."""
    firsts = {shape[:1] for name, (shape, _) in forms.items() if name.startswith(f"{prefix}.")}
    first = firsts.pop() if len(firsts) == 1 else ()
    return first[0] if first else None


def _prefix(order: PlainOrder) -> str | None:
    return None if order.pattern is None else order.pattern.rstrip("*").removesuffix("{}").rstrip(".")


def _layered(forms: Forms, order: PlainOrder) -> dict[str, set[int]]:
    numbered = numbered_prefixes(forms)
    prefix = _prefix(order)
    if prefix is not None:
        if prefix not in numbered:
            there = ", ".join(sorted(p for p in numbered if _outermost(p))[:6]) or "none"
            raise UsageError(f"--pattern {order.pattern!r}: no number follows {prefix!r} in the tensors' names, and "
                             "what is below it has not one number of rows",
                             f"Numbers follow: {there}.")  # fmt: skip
        return {prefix: numbered[prefix]}
    found = {
        prefix: numbers
        for prefix, numbers in numbered.items()
        if _outermost(prefix)
        and max(numbers) > 0
        and _NEXT_TOKENS not in prefix.split(".")
        and (order.gaps or numbers == set(range(len(numbers))))
        and max(len(_print(forms, prefix, number)) for number in numbers) >= _TENSORS_OF_A_LAYER
    }
    if not found:
        raise NothingToAnalyse("no number in the tensors' names counts layers from 0 on",
                               "Name what comes before the number, or before all layers where one tensor holds them: "
                               "--pattern decoder.layers.")  # fmt: skip
    return found


def _outermost(prefix: str) -> bool:
    return not any(part.isdecimal() for part in prefix.split("."))


def _print(forms: Forms, prefix: str, layer: int) -> frozenset[tuple[str, Any]]:
    start = f"{prefix}.{layer}."
    return frozenset((name[len(start) :], form) for name, form in forms.items() if name.startswith(start))
