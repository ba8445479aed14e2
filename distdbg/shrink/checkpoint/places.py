"""Turn a probe's result into places of a checkpoint: numbered names to keep, tensors to cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.layer_names import match_stacks, numbered_prefixes, renumbered
from distdbg.shrink.checkpoint.slicing import Cut

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Places:
    """By the checkpoint's own names: prefix -> numbers to keep, tensor -> cuts, tensor -> the name that it goes by."""

    kept: dict[str, list[int]]
    cuts: dict[str, list[Cut]]
    names: dict[str, str]

    def new_name(self, name: str) -> str | None:
        """The name in the small checkpoint; None for what is not kept."""
        return renumbered(self.names.get(name, name), self.kept)


def places_of(shapes: Shapes, probe: Mapping[str, Any]) -> Places:
    """Find the places of a probe's result in a checkpoint. `shapes`: of all its tensors.

    Raises Refused where the checkpoint lacks parts of the model.
    """
    stacks = {path: s for s in probe["stacks"] for path in (s["path"], *s["also"])}
    prefixes = match_stacks({path: s["layers"] for path, s in stacks.items()}, shapes)
    kept = {prefixes[path]: list(s["kept"]) for path, s in stacks.items()}
    cuts = {
        _in_checkpoint(name, prefixes, shapes): [Cut(dim, tuple(k)) for dim, k in found]
        for name, found in probe["cuts"].items()
    }
    kept |= {_in_checkpoint(path, prefixes, {}): list(entries) for path, entries in probe.get("entries", {}).items()}
    for narrowed in probe.get("narrowed", ()):
        own = _first_of(narrowed["cuts"], prefixes, shapes)
        if narrowed["experts"]:
            own |= _experts(narrowed, prefixes, shapes, own, kept)
        for name, cut in own.items():
            cuts.setdefault(name, []).append(cut)
    return Places(kept, cuts, _other_names(shapes, probe, prefixes, kept))


def _other_names(
    shapes: Shapes, probe: Mapping[str, Any], prefixes: Mapping[str, str], kept: Mapping[str, list[int]]
) -> dict[str, str]:
    """A tensor that layers share lies in a checkpoint under one layer's name. Where that layer goes, it is known by the
    name of one that stays."""
    found: dict[str, str] = {}
    for names in probe.get("tied", ()):
        alike = [_in_checkpoint(name, prefixes, shapes) for name in names]
        there = [name for name in alike if name in shapes]
        staying = [name for name in alike if renumbered(name, kept) is not None]
        if there and staying and not set(there) & set(staying):
            found[there[0]] = staying[0]
    return found


def _first_of(found: Mapping[str, Any], prefixes: Mapping[str, str], shapes: Shapes) -> dict[str, Cut]:
    """The first so many of a dimension. Tied weights are in a checkpoint once, fused ones under other names."""
    own = {}
    for name, (dim, before, after) in found.items():
        there = _in_checkpoint(name, prefixes, shapes)
        if there in shapes:
            if len(shapes[there]) <= dim or shapes[there][dim] != before:
                raise Refused(
                    f"{there!r} has the shape {list(shapes[there])} in the checkpoint, and {before} was expected in it",
                    "It is packed, or of another model; use --random.",
                )
            own[there] = Cut(dim, tuple(range(after)))
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
