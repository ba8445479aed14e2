"""Detect which parameters get a gradient, and which an optimizer has, by name where a module is found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from distdbg.worker.models import parameters_of

_MOST_NAMES = 10
#: What DDP and torch.compile put before a name.
_PREFIXES = ("module.", "_orig_mod.")


class Parameters:
    """Looks at each step of each optimizer, before it: gradients are there then."""

    def __init__(self) -> None:
        self._roots: list[Any] | None = None
        self._owned: dict[int, Any] = {}
        self._got: set[int] = set()

    def look(self, optimizer: Any) -> None:
        if self._roots is None:
            self._roots = list(_roots())
        for parameter in parameters_of(optimizer):
            self._owned[id(parameter)] = parameter
        held = (p for root in self._roots for p in root.parameters())
        self._got.update(id(p) for p in (*self._owned.values(), *held) if p.grad is not None)

    def summary(self) -> dict[str, object]:
        """Without modules that are not trained (a teacher, an average of weights)."""
        names = {id(p): _plain(name) for root in self._roots or () for name, p in root.named_parameters()}
        trained = [p for root in self._roots or () if self._is_trained(root) for p in root.parameters()]
        free = [p for p in trained if p.requires_grad and id(p) not in self._owned]
        owned = list(self._owned.values())
        groups = {
            "without_grad": [p for p in owned if p.requires_grad and id(p) not in self._got],
            "not_owned": [p for p in free if id(p) in self._got],
            "not_owned_without_grad": [p for p in free if id(p) not in self._got],
            "frozen": [p for p in owned if not p.requires_grad],
        }
        fields: dict[str, object] = {"owned": len(owned), "dropout": self._dropout()}
        for word, found in groups.items():
            if found:
                shown = [names.get(id(p), f"a tensor {list(p.shape)}") for p in found[:_MOST_NAMES]]
                fields[word] = {"count": len(found), "names": shown}
        return fields

    def _is_trained(self, root: Any) -> bool:
        return any(id(p) in self._owned or id(p) in self._got for p in root.parameters())

    def _dropout(self) -> int:
        """Modules that make the loss noisy though the batch is the same."""
        return sum(
            type(module).__name__.startswith(("Dropout", "AlphaDropout")) and module.training and bool(module.p)
            for root in self._roots or () if self._is_trained(root) for module in root.modules()
        )  # fmt: skip


def _roots() -> Iterator[Any]:
    """Every module that is part of no other, once: a walk over all objects, some 0.1 s."""
    import gc

    module_class = sys.modules["torch"].nn.Module
    modules = [found for found in gc.get_objects() if issubclass(type(found), module_class)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return (module for module in modules if id(module) not in inner and "_parameters" in module.__dict__)


def _plain(name: str) -> str:
    while name.startswith(_PREFIXES):
        name = name.partition(".")[2]
    return name
