"""Name the addresses of a snapshot by the modules and optimizers of this process.

Written into the snapshot under a separate key (evidence/memory/owners.py has its form), which torch's tools ignore. It
reads only the addresses of tensors. No tensor is changed, gathered or kept; some 20 us a tensor.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from distdbg.worker.memory.live import instances_of, roots, without_subclass_code
from distdbg.worker.models import inner_of, plain_name

KEY, SCHEMA = "distdbg", "distdbg.owners/1"
_MOST_BLOCKS, _MOST_CLASSES, _MOST_PATHS = 50_000, 400, 8


def owners(device: str = "cuda", workspaces: Iterable[tuple[int, int, int]] = ()) -> dict[str, object]:
    """In plain containers, for a pickle; empty without torch. Raises where it cannot read an object.

    `workspaces` are libraries' own buffers: device, address, bytes.
    """
    nn, optim = sys.modules.get("torch.nn"), sys.modules.get("torch.optim")
    if nn is None or optim is None:
        return {}
    everything = gc.get_objects()
    modules, optimizers = instances_of(everything, nn.Module), instances_of(everything, optim.Optimizer)
    everything.clear()
    with without_subclass_code():
        found = _AddressOwners(device)
        # where DDP or FSDP wraps a model, the wrapper
        models = [module for module in roots(modules) if next(_tensors(module), None) is not None]
        for root in models:
            before = f"{type(inner_of(root)).__name__}." if len(models) > 1 else ""
            found.model(inner_of(root), before)
        for optimizer in optimizers:
            found.optimizer(optimizer)
    found.workspaces(workspaces)
    return {"schema": SCHEMA, "left_out": found.left_out, "blocks": found.blocks(), "forwards": found.forwards()}


def _tensors(root: Any) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, tensor) of all below it, each parameter and its gradient once."""
    seen: set[int] = set()
    for path, module in root.named_modules():
        stem = f"{path}." if path else ""
        for kind, named in (("parameters", module._parameters), ("buffers", module._buffers)):
            for name, tensor in list(named.items()):
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield kind, f"{stem}{name}", tensor
                    if kind == "parameters" and tensor.is_leaf and tensor.grad is not None:
                        yield "gradients", f"{stem}{name}", tensor.grad


class _AddressOwners:
    def __init__(self, device: str) -> None:
        self._device = device
        #: by device and address: bytes, kind, name, how many tensors lie in it
        self._blocks: dict[tuple[int, int], list[Any]] = {}
        self._names: dict[int, str] = {}
        self._classes: dict[type, dict[str, None]] = {}
        self.left_out = 0

    def model(self, root: Any, before: str) -> None:
        for kind, name, tensor in _tensors(root):
            words = f"{before}{plain_name(name)}"
            if kind == "parameters":
                self._names[id(tensor)] = words
            self._add(kind, words, tensor)
        for path, module in root.named_modules():
            if type(module) in self._classes or len(self._classes) < _MOST_CLASSES:
                parts = f"{before}{plain_name(path)}".rstrip(".").split(".")
                folded = ".".join("*" if word.isdigit() else word for word in parts)
                self._classes.setdefault(type(module), {})[folded] = None

    def optimizer(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._names:  # of no module: mostly a copy in another precision
                    self._add("parameters", f"a parameter of {type(optimizer).__name__}", parameter)
        for parameter, state in list(optimizer.state.items()):
            of = self._names.get(id(parameter), f"a parameter of {type(optimizer).__name__}")
            for name, value in list(state.items()) if type(state) is dict else ():
                if hasattr(value, "untyped_storage"):
                    self._add("optimizer state", f"{name} of {of}", value)

    def workspaces(self, workspaces: Iterable[tuple[int, int, int]]) -> None:
        for number, address, size in workspaces:
            self._blocks.setdefault((number, address), [size, "workspace", "cuBLAS", 1])

    def _add(self, kind: str, name: str, tensor: Any) -> None:
        try:
            part = getattr(tensor, "_local_tensor", tensor)
            if part.device.type != self._device:
                return
            storage = part.untyped_storage()
            key = part.device.index or 0, storage.data_ptr()
        except Exception:  # sparse, fake, another subclass: it has no single address
            self.left_out += 1
            return
        if key in self._blocks:
            self._blocks[key][3] += 1
        elif key[1] and len(self._blocks) < _MOST_BLOCKS:
            self._blocks[key] = [storage.nbytes(), kind, name, 1]
        elif key[1]:
            self.left_out += 1

    def blocks(self) -> list[list[object]]:
        """A bucket of DDP, or a flat parameter, is named by its first tensor."""
        return [[device, address, size, kind, name if count == 1 else f"{name} and {count - 1} more in one block"]
                for (device, address), (size, kind, name, count) in self._blocks.items()]  # fmt: skip

    def forwards(self) -> list[list[object]]:
        found: list[list[object]] = []
        for cls, paths in self._classes.items():
            code = getattr(getattr(cls, "forward", None), "__code__", None)
            if code is not None and paths:
                lines = [line for _, _, line in code.co_lines() if line]
                shown = list(paths)[:_MOST_PATHS] if len(paths) <= _MOST_PATHS else []
                found.append([code.co_filename, code.co_firstlineno, max(lines, default=code.co_firstlineno),
                              cls.__name__, shown])  # fmt: skip
        return found
