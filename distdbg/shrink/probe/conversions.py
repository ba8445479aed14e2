"""Ask transformers which tensor of a model it loads each tensor of a checkpoint into."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from distdbg.shrink.checkpoint.layer_names import number_of


def module_names(model: Any, stored: Iterable[str]) -> dict[str, str]:
    """Stored name -> name in the model; what the model has no tensor for gets the name that its neighbours suggest."""
    tensors = model.state_dict()
    modules = {path for path, _ in model.named_modules()}
    rename = _renaming(model, tensors)
    return {name: _placed(rename(name), model.base_model_prefix, tensors, modules) for name in _in_order(stored)}


def _renaming(model: Any, tensors: dict[str, Any]) -> Callable[[str], str]:
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
    except ImportError:  # before version 5
        patterns = getattr(model, "_checkpoint_conversion_mapping", None) or {}
        return lambda name: _by_patterns(name, patterns, tensors)
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]

    def rename(name: str) -> str:
        renamed, _ = rename_source_key(name, renamings, converters, model.base_model_prefix, tensors)
        if renamed not in tensors and name in tensors:
            renamed, _ = rename_source_key(name, [], [], model.base_model_prefix, tensors)
        return str(renamed)

    return rename


def _by_patterns(name: str, patterns: dict[str, str], tensors: dict[str, Any]) -> str:
    if name in tensors:
        return name
    for pattern, replacement in patterns.items():
        new, count = re.subn(pattern, replacement.lstrip("^"), name)
        if count:
            return new
    return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))


def _placed(name: str, prefix: str, tensors: dict[str, Any], modules: Collection[str]) -> str:
    """With or without the prefix of the base model, as the model has the tensor, or its module (quantized weights)."""
    candidates = [name, name.removeprefix(f"{prefix}."), f"{prefix}.{name}"] if prefix else [name]
    known = [n for n in candidates if n in tensors] or [n for n in candidates if n.rpartition(".")[0] in modules]
    return next(iter(known or [n for n in candidates if n.partition(".")[0] in modules]), name)


def _in_order(names: Iterable[str]) -> list[str]:
    """By their numbers, as transformers goes through them: some of its rules depend on what came before."""
    return sorted(names, key=lambda name: [(number is None, number or 0, part)
                                           for part in name.split(".") for number in (number_of(part),)])  # fmt: skip
