"""The tasks `probe`, which finds what to change in a folder's config, and `random`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import prod
from pathlib import Path
from typing import Any

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.config_leaves import changed, dotted, value_at
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk
from distdbg.shrink.probe.building import Builder, open_builder
from distdbg.shrink.probe.conversions import module_names
from distdbg.shrink.probe.kinds import entries_left, fingerprints, lists_a_use
from distdbg.shrink.probe.loading import load
from distdbg.shrink.probe.narrowing import Narrowed, narrowed
from distdbg.shrink.probe.shrinking import ShrunkModel, WantedLayers, shrink
from distdbg.shrink.probe.sizing import sized
from distdbg.shrink.probe.stack import Stack
from distdbg.shrink.tokenizer import tokenizer_of


def probe(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: folder (with the tokenizer's files where the vocabulary may be cut), trust, layers (number or None),
    keep, stacks, narrow, size, uncut (there is a tokenizer, but none that can be cut), stored (names in the
    checkpoint)."""
    quiet()
    builder = open_builder(task["folder"], task["trust"], stored=task["stored"])
    modules = module_names(builder.bare, task["stored"]) if task["stored"] else {}
    tokenizer = tokenizer_of(Folder(Path(task["folder"])))
    wanted = WantedLayers(task["layers"], task["keep"], task["stacks"])
    fewer = narrowed(builder, task["narrow"], tokenizer, wanted)
    if task.get("size"):
        fewer += sized(builder, task["size"], wanted, task["narrow"], tokenizer, uncut=task["uncut"])
    return as_json(builder, shrink(builder, wanted), fewer) | {"modules": modules}


def quiet() -> None:
    """Switch off the messages of transformers: it would print one for each probe that a config refuses."""
    import logging
    import warnings

    load({})
    import transformers

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()


def random_weights(task: dict[str, Any]) -> dict[str, Any]:
    """The small model with the initialisation that its own code gives it, written as a checkpoint.

    `task`: folder (with the small config.json; the weights go beside it), to (its later name), trust, dtype or None,
    seed.
    """
    import torch

    torch.manual_seed(task["seed"])
    builder = open_builder(task["folder"], task["trust"])
    config = builder.config(builder.full)
    dtype = getattr(torch, task["dtype"]) if task["dtype"] else getattr(config, "dtype", None) or torch.float32
    # initialised in the default type and then cast: half precision has no random numbers of its own everywhere
    make = getattr(builder.model_class, "from_config", None) or builder.model_class._from_config
    model = make(config).to(dtype)
    refuse_a_full_disk(Path(task["to"]), sum(p.numel() * p.element_size() for p in model.parameters()))
    model.save_pretrained(task["folder"])
    return {"parameters": sum(p.numel() for p in model.parameters())}


# -- the answer of `probe`, as plain data for the parent process, which has no torch ----------------------------------


def as_json(builder: Builder, shrunk: ShrunkModel, fewer: Sequence[Narrowed] = ()) -> dict[str, Any]:
    """The keys: edits [[path, value]], stacks, cuts {full name: [[dim, kept, of how many]]}, entries {full path: kept},
    tied, narrowed, …"""
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
        "entries": _followers(shrunk)
        | {path: kept for stack in shrunk.stacks for path, kept in _entries(stack, shrunk)},
        "narrowed": [_narrowed(one) for one in fewer],
        "tied": [names for names in shrunk.full.tied if sum(name.startswith(layers) for name in names) > 1],
        "warnings": [*(one.words for one in fewer), *shrunk.warnings],
        "builds": builder.builds,
    }


def _narrowed(one: Narrowed) -> dict[str, Any]:
    edits = [[list(path), value] for path, value in one.edits.items()]
    fields = {"axis": one.axis, "from": one.before, "to": one.after, "edits": edits, "random": one.random}
    return fields | {
        "cuts": {name: list(cut) for name, cut in one.cuts.items()},
        "experts": list(one.experts),
        "rows": list(one.rows),
    }


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


def _followers(shrunk: ShrunkModel) -> dict[str, list[int]]:
    """Lists beside the stacks that became shorter with one (XLM's norms), and which of their entries stay."""
    stacks = [s for s in shrunk.stacks if s.kept != list(range(s.group.layers))]
    driven = tuple(path for s in shrunk.stacks for path in s.group.stacks)
    found: dict[str, list[int]] = {}
    for path, count in shrunk.full.lists.items():
        left = shrunk.small.lists.get(path, 0)
        if left == count or path in driven or path.startswith((*(f"{p}." for p in driven), *(f"{p}." for p in found))):
            continue
        found[path] = _left_with_its_stack(path, count, left, stacks) or []
        if len(found[path]) != left:
            raise Refused(
                f"{path} has {left} of {count} modules in the small model, and which of them stay is not known",
                "Keep other layers (--keep), or use --random.",
            )
    return found


def _cuts(shrunk: ShrunkModel) -> dict[str, list[list[Any]]]:
    """Tensors outside of a layer, or in one, that are shaped by the number of layers: name -> [[dim, kept, of]]."""
    stacks = [s for s in shrunk.stacks if s.kept != list(range(s.group.layers))]
    found: dict[str, list[list[Any]]] = {}
    for name, (shape, _) in shrunk.small.tensors.items():
        full_name = _full_name(name, shrunk)
        full = shrunk.full.tensors.get(full_name)
        if full is None or full[0] == shape or len(full[0]) != len(shape):
            continue
        for dim, (a, b) in enumerate(zip(full[0], shape, strict=True)):
            fit = _left_with_its_stack(full_name, a, b, stacks) if a != b else None
            if fit is not None:
                found.setdefault(full_name, []).append([dim, fit, a])
    return found


def _left_with_its_stack(name: str, count: int, left: int, stacks: Sequence[Stack]) -> list[int] | None:
    """The entries that stay of a list, or a dimension, that follows one of the stacks; of several, the nearest in the
    model. Raises Refused where two that are equally near keep other layers."""
    fits: dict[int, list[list[int]]] = {}
    for stack in stacks:
        entries = entries_left(count, left, stack.group.layers, stack.kept)
        if entries is not None:
            near = max(_in_common(name, path) for path in stack.group.stacks)
            fits.setdefault(near, []).append(entries)
    nearest = fits[max(fits)] if fits else []
    if any(entries != nearest[0] for entries in nearest):
        raise Refused(
            f"which layers' entries {name} has is not known: two stacks are of that length",
            "Keep the same layers of both (--keep).",
        )
    return nearest[0] if nearest else None


def _in_common(name: str, path: str) -> int:
    """Parts of two names that are the same from the left."""
    alike = (a == b for a, b in zip(name.split("."), path.split("."), strict=False))
    return len(list(takewhile(bool, alike)))


def _full_name(name: str, shrunk: ShrunkModel) -> str:
    for stack in shrunk.stacks:
        for path in stack.group.stacks:
            if name.startswith(f"{path}."):
                number, dot, rest = name[len(path) + 1 :].partition(".")
                name = f"{path}.{stack.kept[int(number)]}{dot}{rest}"
    return name
