"""Which modules of a model are sharded one by one: the blocks of its stacks, as scripts give them to FSDP2."""

from __future__ import annotations

from collections import Counter
from typing import Any


def wrapped(model: Any) -> list[Any]:
    """The entries of the stacks: of those whose blocks the model names itself (`_no_split_modules`, which Accelerate
    goes by), else of the outermost. Blocks are modules that consist of modules; of plain ones, the longest list."""
    named = set(getattr(model, "_no_split_modules", None) or ())
    found = _outermost(model, named) or (_outermost(model, set()) if named else [])
    return found or max((entries for m in model.modules() if (entries := _entries(m))), key=len, default=[])


def _outermost(module: Any, named: set[str]) -> list[Any]:
    """Blocks of lists, none within another; with `named` of lists that hold one of such a class."""
    blocks = _blocks(module)
    if blocks and (not named or any(type(block).__name__ in named for block in blocks)):
        return blocks
    return [block for child in module.children() for block in _outermost(child, named)]


def _blocks(module: Any) -> list[Any]:
    """Of a dict or a sequence, which may hold all of a model (nanoGPT's), those of a class that is there again."""
    from torch import nn

    entries = _entries(module)
    if not any(list(entry.children()) for entry in entries):
        return []
    if isinstance(module, nn.ModuleList):
        return entries
    often = Counter(type(entry) for entry in entries)
    return [entry for entry in entries if often[type(entry)] > 1 and list(entry.children())]


def _entries(module: Any) -> list[Any]:
    """What a container holds, where that is more than one module with parameters."""
    from torch import nn

    if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential):
        return []
    entries = [child for child in module.children() if next(child.parameters(), None) is not None]
    return entries if len(entries) > 1 else []
