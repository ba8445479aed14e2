"""Turn the result of a probe into plain data for the parent process, which has no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import changed, dotted, value_at
from distdbg.shrink.probe.building import Builder
from distdbg.shrink.probe.kinds import fingerprints, lists_a_use
from distdbg.shrink.probe.narrowing import Narrowed
from distdbg.shrink.probe.shrinking import ShrunkModel, Stack


def as_json(builder: Builder, shrunk: ShrunkModel, fewer: Sequence[Narrowed] = ()) -> dict[str, Any]:
    """The keys: edits [[path, value]], stacks, cuts {full name: [[dim, kept]]}, entries {full path: kept}, …"""
    config, new = builder.config(builder.full), changed(builder.full, shrunk.edits)
    paths = dict.fromkeys(path[:-1] if isinstance(path[-1], int) else path for path in shrunk.edits)
    layers = tuple(f"{path}." for stack in shrunk.stacks for path in stack.group.stacks)
    return {
        "model_type": config.model_type,
        "model_class": getattr(builder.model_class, "__name__", str(builder.model_class)),
        "aliases": dict(getattr(type(config), "attribute_map", {}) or {}),
        # entries of a list (`depths[2]`) as edits of the whole list, which a config may not have written out
        "edits": [[list(path), value_at(new, path)] for path in paths],
        "stacks": [_stack(stack, shrunk) for stack in shrunk.stacks],
        "cuts": _cuts(shrunk),
        "entries": {path: kept for stack in shrunk.stacks for path, kept in _entries(stack, shrunk)},
        "narrowed": [_narrowed(one) for one in fewer],
        "tied": [names for names in shrunk.full.tied if sum(name.startswith(layers) for name in names) > 1],
        "warnings": [*(one.words for one in fewer), *shrunk.warnings],
        "builds": builder.builds,
    }


def _narrowed(one: Narrowed) -> dict[str, Any]:
    edits = [[list(path), value] for path, value in one.edits.items()]
    fields = {"axis": one.axis, "from": one.before, "to": one.after, "edits": edits, "random": one.random}
    return fields | {"cuts": {name: list(cut) for name, cut in one.cuts.items()}, "experts": list(one.experts)}


def _stack(stack: Stack, shrunk: ShrunkModel) -> dict[str, Any]:
    kinds = []
    for kind in range(max(stack.kinds) + 1):
        layers = [i for i, k in enumerate(stack.kinds) if k == kind]
        size = _size(shrunk, stack, layers[0])
        unlike = _unlike(stack, layers[0]) if kind else ""
        kinds.append({"layers": layers, "kept": [i for i in layers if i in stack.kept], "unlike": unlike, **size})
    group = stack.group
    return {
        "path": group.stacks[0],
        "also": list(group.stacks[1:]),
        "layers": group.layers,
        "kept": stack.kept,
        "kinds": kinds,
        "fields": [dotted(p) for p in stack.edits],
        "driven_by": ", ".join(dotted(p) for p in group.drivers),
    }


def _unlike(stack: Stack, layer: int) -> str:
    """The first thing in which a layer differs from the first kind's; empty where only a list of the config says so."""
    prints = stack.prints[stack.name]
    first, other = prints[stack.kinds.index(0)], prints[layer]
    numbers = stack.numbers[stack.name]
    off = [k for k in sorted({*first, *other}) if k not in numbers and first.get(k) != other.get(k)]
    if not off:
        return ""
    inner, key = min(off, key=lambda k: (k[1] != "class", k[0].count("."), k))
    name = ".".join(part for part in (inner, "" if key in ("class", "shape") else key) if part) or "the layer"
    if (inner, key) not in first or (inner, key) not in other:
        return f"{'it has' if (inner, key) in other else 'it has no'} {name}"
    what = "has the shape " if key == "shape" else "is "
    return f"{name} {what}{other[inner, key]}, not {first[inner, key]}"


def _size(shrunk: ShrunkModel, stack: Stack, layer: int) -> dict[str, Any]:
    """class, parameters and bytes of one layer."""
    parameters = size = 0
    start = f"{stack.name}.{layer}."
    for name, (shape, element) in shrunk.full.tensors.items():
        if name.startswith(start) and name in shrunk.full.parameters:
            parameters += prod(shape)
            size += prod(shape) * element
    return {"class": shrunk.full.modules[start[:-1]][0], "parameters": parameters, "bytes": size}


def _entries(stack: Stack, shrunk: ShrunkModel) -> Iterator[tuple[str, list[int]]]:
    """Lists in a kept layer, by their path in the full model, whose entries belong to the layers that use them."""
    for path in stack.group.stacks:
        for new, layer in enumerate(fingerprints(shrunk.small, path)):
            for inner, kept in lists_a_use(stack.prints[path], layer, stack.kept, new).items():
                yield f"{path}.{stack.kept[new]}.{inner}", kept


def _cuts(shrunk: ShrunkModel) -> dict[str, list[list[Any]]]:
    """Tensors outside of a layer, or in one, that are shaped by the number of layers: name -> [[dim, kept layers]]."""
    lengths = [(s.group.layers, len(s.kept), s.kept) for s in shrunk.stacks if len(s.kept) < s.group.layers]
    found: dict[str, list[list[Any]]] = {}
    for name, (shape, _) in shrunk.small.tensors.items():
        full = shrunk.full.tensors.get(_full_name(name, shrunk))
        if full is None or full[0] == shape or len(full[0]) != len(shape):
            continue
        for dim, (a, b) in enumerate(zip(full[0], shape, strict=True)):
            between = next((k for w, n, k in lengths if (a, b) == (w - 1, n - 1) and a != b), None)
            if between is not None:
                found.setdefault(_full_name(name, shrunk), []).append([dim, between[:-1]])  # each behind its layer
                continue
            fit = next(((w, k) for w, n, k in lengths if a != b and a % w == 0 and a // w * n == b), None)
            if fit is not None:
                block = a // fit[0]  # a block a layer, one layer after the other
                kept = [layer * block + i for layer in fit[1] for i in range(block)]
                found.setdefault(_full_name(name, shrunk), []).append([dim, kept])
    return found


def _full_name(name: str, shrunk: ShrunkModel) -> str:
    for stack in shrunk.stacks:
        for path in stack.group.stacks:
            if name.startswith(f"{path}."):
                number, dot, rest = name[len(path) + 1 :].partition(".")
                name = f"{path}.{stack.kept[int(number)]}{dot}{rest}"
    return name
