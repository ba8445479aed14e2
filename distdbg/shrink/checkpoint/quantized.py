"""Rename the modules in a quantized checkpoint's config as its layers are renamed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from distdbg.shrink.checkpoint.layer_names import all_renumbered

#: keys of a config that say how it is quantized, and files beside it that do
SECTIONS = ("quantization_config", "compression_config")
FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
#: what marks a pattern: compressed-tensors' and GPTQ's
_MARKS = ("re:", "+:", "-:")

Kept = Mapping[str, Sequence[int]]


def following(config: Mapping[str, Any], kept: Kept, modules: Collection[str] = ()) -> dict[str, Any]:
    """The config with what it says of quantization, nested configs included, about the layers that are kept."""
    found = {}
    for key, value in config.items():
        if key in SECTIONS:
            found[key] = renumbered_names(value, kept, modules)
        else:
            found[key] = following(value, kept, modules) if isinstance(value, Mapping) else value
    return found


def renumbered_names(value: Any, kept: Kept, modules: Collection[str] = ()) -> Any:
    """`value` with every module name in it as its kept layer is called now.

    Names of layers that are not kept leave lists, and leave objects whose keys they are (settings a module). `kept`:
    prefix -> layers. `modules`: those of the full model. A pattern (`re:…`) that would match others of the kept ones
    than it did becomes the names of those that it matched.
    """
    if isinstance(value, str):
        return next(_names(value, kept, ()), value)
    if isinstance(value, list):
        return [new for v in value for new in (_names(v, kept, modules) if isinstance(v, str)
                                               else [renumbered_names(v, kept, modules)])]  # fmt: skip
    if isinstance(value, Mapping):
        return {new: renumbered_names(v, kept, modules) for k, v in value.items() for new in _names(k, kept, modules)}
    return value


def _names(text: str, kept: Kept, modules: Collection[str]) -> Iterator[str]:
    """The new names of a name or a pattern: itself, another, several, none."""
    mark = next((m for m in _MARKS if text.startswith(m)), "")
    if mark:
        yield from _pattern(text, mark, kept, modules)
    elif "*" in text:
        yield text
    else:
        yield from all_renumbered(text, {**_endings(kept), **kept})


def _pattern(text: str, mark: str, kept: Kept, modules: Collection[str]) -> Iterator[str]:
    try:
        matches = re.compile(text.removeprefix(mark)).match
    except re.error:
        yield text
        return
    new_names = {new: name for name in modules for new in all_renumbered(name, kept)}
    wanted = {new for new, name in new_names.items() if matches(name)}
    if wanted == {new for new in new_names if matches(new)}:
        yield text
    elif mark == "re:":
        yield from sorted(wanted)
    else:
        yield from (mark + re.escape(name) for name in sorted(wanted))


def _endings(kept: Kept) -> dict[str, Sequence[int]]:
    """`layers` for `model.layers`: names may begin further in. Nothing where two stacks end alike."""
    found: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for prefix, layers in kept.items():
        parts = prefix.split(".")
        for at in range(1, len(parts)):
            found[".".join(parts[at:])].add(tuple(layers))
    return {ending: next(iter(all_of_them)) for ending, all_of_them in found.items() if len(all_of_them) == 1}
