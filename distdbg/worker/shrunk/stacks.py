"""Find the stacks of layers of a model, and note each module's layer in it.

The outermost ModuleLists are the stacks; a list inside one (experts, heads) belongs to a layer. The note is in each
module's own dict, where code that torch.compile traces can read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: (place of the layer from 0, number of layers of its stack)
PLACE = "_distdbg_layer"
#: Two blocks of something are no stack of layers.
_FEWEST = 2


def stacks(model: Any) -> Iterator[tuple[str, Any]]:
    """(path, ModuleList) of each stack: lists of at least two modules of one class, most of them with parameters."""
    from torch.nn import ModuleList

    found: list[str] = []
    for path, module in model.named_modules():
        if not isinstance(module, ModuleList) or any(path.startswith(f"{outer}.") for outer in found):
            continue
        layers = list(module.children())
        if len(layers) >= _FEWEST and all(any(True for _ in layer.parameters()) for layer in layers):
            found.append(path)
            yield path, module


def place_modules(model: Any) -> int:
    """Note the layer of each module below a stack; returns the number of layers."""
    count = 0
    for _, stack in stacks(model):
        layers = list(stack.children())
        count += len(layers)
        for place, layer in enumerate(layers):
            for module in layer.modules():
                module.__dict__[PLACE] = (place, len(layers))
    return count
