"""Find tensors and modules among the objects that Python's collector knows. It does not know what only C++ holds.

`gc.get_objects()` collects nothing, and takes about 10 ms for half a million objects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class Tensors:
    """Of many tensors: how many, their bytes by kind of device (each storage once), how many have a graph."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.count = self.graphs = 0
        self.bytes: dict[str, int] = {}
        seen: set[int] = set()
        for tensor in tensors:
            try:
                storage = tensor.untyped_storage()
                key, size, device = storage._cdata, storage.nbytes(), tensor.device.type
                graph = tensor.grad_fn is not None
            except Exception:  # one without a storage: fake, sparse, another subclass
                continue
            self.count += 1
            self.graphs += graph
            if key not in seen:
                seen.add(key)
                self.bytes[device] = self.bytes.get(device, 0) + size


def instances_of(objects: Iterable[object], base: type) -> list[Any]:
    """By their class alone: no code of an object runs."""
    kinds: dict[type, bool] = {}
    found = []
    for one in objects:
        kind = type(one)
        if kind not in kinds:
            kinds[kind] = issubclass(kind, base)
        if kinds[kind]:
            found.append(one)
    return found


def tensors_of(objects: Iterable[object]) -> list[Any]:
    base = getattr(sys.modules.get("torch"), "Tensor", None)
    return [] if base is None else instances_of(objects, base)


def roots(modules: Iterable[Any]) -> list[Any]:
    """Modules that are part of no other, without those whose `__init__` has not run."""
    made = [module for module in modules if {"_modules", "_parameters"} <= vars(module).keys()]
    inner = {id(child) for module in made for child in module._modules.values()}
    return [module for module in made if id(module) not in inner]


def without_subclass_code() -> AbstractContextManager[object]:
    """Within it, reading a tensor runs no code of a subclass. Only in this thread."""
    torch: Any = sys.modules.get("torch")
    context: AbstractContextManager[object] = nullcontext()
    return context if torch is None else torch._C.DisableTorchFunctionSubclass()
