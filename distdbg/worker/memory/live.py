"""List live tensors as Python's collector knows them. It does not know tensors that only C++ holds."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any


class Tensors:
    """Of many tensors: how many, their bytes by kind of device (each storage once), how many have a graph."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.count = self.graphs = 0
        self.bytes: dict[str, int] = {}
        self._seen: set[int] = set()
        for tensor in tensors:
            self._add(tensor)

    def _add(self, tensor: Any) -> None:
        try:
            storage = tensor.untyped_storage()
            key, size, device = storage._cdata, storage.nbytes(), tensor.device.type
            graph = tensor.grad_fn is not None
        except Exception:  # one without a storage: fake, sparse, another subclass
            return
        self.count += 1
        self.graphs += graph
        if key not in self._seen:
            self._seen.add(key)
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


def objects() -> list[object]:
    """All that the collector knows; nothing is collected. About 10 ms for half a million."""
    return gc.get_objects()


class Untouched:
    """Within it, reading a tensor runs no code of a subclass. Only in this thread."""

    def __enter__(self) -> None:
        c = getattr(sys.modules.get("torch"), "_C", None)
        guard = getattr(c, "DisableTorchFunctionSubclass", None)
        self._guard = guard() if guard is not None else None
        if self._guard is not None:
            self._guard.__enter__()

    def __exit__(self, *exception: object) -> None:
        if self._guard is not None:
            self._guard.__exit__(*exception)
