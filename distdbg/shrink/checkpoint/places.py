"""Turn a probe's result into places of a checkpoint: numbered names to keep, tensors to cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.errors import Refused
from distdbg.model import grouped
from distdbg.shrink.checkpoint.layer_names import numbered_prefixes, renumbered
from distdbg.shrink.checkpoint.slicing import Cut
from distdbg.shrink.checkpoint.stored_names import new_names

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Places:
    """By the checkpoint's own names: tensor -> its new names, none where it is not kept; tensor -> cuts; prefix of a
    number -> numbers to keep."""

    new: dict[str, list[str]]
    cuts: dict[str, list[Cut]]
    kept: dict[str, list[int]]


def places_of(shapes: Shapes, probe: Mapping[str, Any], modules: Mapping[str, str]) -> Places:
    """Find the places of a probe's result in a checkpoint. `shapes`: of all its tensors. `modules`: their names in the
    model.

    Raises Refused where the checkpoint lacks parts of the model.
    """
    stacks = {path: s for s in probe["stacks"] for path in (s["path"], *s["also"])}
    kept = {path: list(s["kept"]) for path, s in stacks.items()} | probe.get("entries", {})
    found = new_names(modules, kept, probe.get("tied", ()))
    for path, stack in stacks.items():
        wanted = set(range(stack["layers"]))
        if not found.layers[path] >= wanted:
            there = len(found.layers[path] & wanted)
            raise Refused(
                f"the config makes {len(wanted)} layers of {path!r}, and the checkpoint has tensors of {there} of them",
                "The weights belong to another model than the config, or name layers in a way that is not known.",
            )
    stored = _stored(modules)
    cuts = {there: [Cut(dim, tuple(k)) for dim, k, _ in cut] for there, cut in _cuts(probe["cuts"], stored, shapes)}
    prefixes = {path: min(those) for path, those in found.prefixes.items() if those}
    kept |= {prefix: kept[path] for path, those in found.prefixes.items() for prefix in those}
    experts: dict[str, list[int]] = {}
    for narrowed in probe.get("narrowed", ()):
        own = _parts(narrowed, stored, prefixes, shapes)
        if narrowed["experts"]:
            own |= _experts(narrowed, prefixes, shapes, own, experts)
        for name, cut in own.items():
            cuts.setdefault(name, []).append(cut)
    new = {name: [] if renumbered(name, experts) is None else to for name, to in found.new.items()}
    return Places(new, cuts, kept | experts)


def _stored(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """The model's name of a tensor -> what is loaded into it."""
    return grouped((module, name) for name, module in modules.items())


def _cuts(
    wanted: Mapping[str, Sequence[Any]], stored: Mapping[str, list[str]], shapes: Shapes
) -> Iterator[tuple[str, Sequence[Any]]]:
    """(stored name, cuts of it). A tensor that is not stored is tied to another, or made anew."""
    for module, cuts in wanted.items():
        there = stored.get(module, [])
        if len(there) > 1 or any(shapes[n][dim : dim + 1] != (size,) for n in there for dim, _, size in cuts):
            raise Refused(
                f"{module!r}, which depends on the number of layers, has another form in the checkpoint",
                "Use --random to shrink the model without its weights.",
            )
        yield from ((name, cuts) for name in there)


def _parts(
    narrowed: Mapping[str, Any], stored: Mapping[str, list[str]], prefixes: Mapping[str, str], shapes: Shapes
) -> dict[str, Cut]:
    """The rows that stay of a dimension, else the first so many. Tied weights are in a checkpoint once, fused ones
    under other names."""
    own = {}
    for name, (dim, before, after) in narrowed["cuts"].items():
        alike = stored.get(name, ())
        there = alike[0] if len(alike) == 1 else _in_checkpoint(name, prefixes, shapes)
        if there in shapes:
            if len(shapes[there]) <= dim or shapes[there][dim] != before:
                raise Refused(
                    f"{there!r} has the shape {list(shapes[there])} in the checkpoint, and {before} was expected in it",
                    "It is packed, or of another model; use --random.",
                )
            own[there] = Cut(dim, tuple(narrowed.get("rows") or range(after)))
    return own


def _experts(
    narrowed: Mapping[str, Any], prefixes: Mapping[str, str], shapes: Shapes, own: Mapping[str, Cut],
    kept: dict[str, list[int]]
) -> dict[str, Cut]:  # fmt: skip
    """Experts that a checkpoint numbers one by one are kept by their numbers; what chooses them lies beside them."""
    before, after = int(narrowed["from"]), int(narrowed["to"])
    held = [_in_checkpoint(path, prefixes, {}) for path in narrowed["experts"]]
    words = {path.rpartition(".")[2] for path in held}
    layers = tuple(f"{prefix}." for prefix in prefixes.values())
    numbered = [
        prefix
        for prefix, numbers in numbered_prefixes(shapes).items()
        if numbers == set(range(before)) and prefix.startswith(layers) and prefix.rpartition(".")[2] in words
    ]
    kept |= {prefix: list(range(after)) for prefix in numbered}
    cuts = {
        name: Cut(0, tuple(range(after)))
        for name in _beside(numbered, held, shapes)
        if name not in own and shapes[name][:1] == (before,)
    }
    if not numbered and not cuts and not any(len(shapes[name]) > 2 for name in own):
        raise Refused(f"the checkpoint's {before} experts are not found where the model has them ({held[0]})",
                      "Use --random.")  # fmt: skip
    return cuts


def _beside(numbered: list[str], held: list[str], shapes: Shapes) -> Iterator[str]:
    """Tensors below the parent of numbered experts (the router's), or directly in the module that holds fused ones."""
    parents = {prefix.rpartition(".")[0] for prefix in numbered}
    inside = tuple(f"{prefix}." for prefix in numbered)
    for name in shapes:
        owner = name.rpartition(".")[0]
        router = {owner, owner.rpartition(".")[0]} & parents and not name.startswith(inside)
        if router or (owner in held and owner not in numbered):
            yield name


def _in_checkpoint(name: str, prefixes: Mapping[str, str], shapes: Shapes) -> str:
    """A model's tensor name as the checkpoint has it, as far as the stacks' prefixes, or the last words of it, tell."""
    for path, prefix in prefixes.items():
        if name.startswith(f"{path}."):
            return prefix + name[len(path) :]
    if name not in shapes:
        parts = name.split(".")
        for last in (".".join(parts[-2:]), parts[-1]):
            alike = [n for n in shapes if n == last or n.endswith(f".{last}")]
            if len(alike) == 1:
                return alike[0]
    return name
