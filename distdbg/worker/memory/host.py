"""Describe a rank's memory without CUDA: the process, Python's collector, live tensors by size and name.

Allocations have no stacks here: the line that made a tensor is unknown; known are its form and, of the largest, the
holder. Takes some 0.1 s, with the GIL.
"""

from __future__ import annotations

import gc
from typing import Any

from distdbg.worker.memory import figures
from distdbg.worker.memory.holders import holder_of
from distdbg.worker.memory.live import Tensors, tensors_of, without_subclass_code

_MOST_GROUPS, _MOST_NAMED, _MOST_TYPES = 40, 5, 20
SCHEMA = "distdbg.host-memory/1"


def snapshot(model: Any) -> dict[str, object]:
    """As JSON can hold it. `model` is the DDP or FSDP module, None where there is none: it gives parameters names."""
    from collections import Counter

    everything = gc.get_objects()
    types = Counter(map(type, everything))
    with without_subclass_code():
        tensors = tensors_of(everything)
        named = () if model is None else (*model.named_parameters(), *model.named_buffers())
        names = {id(tensor): name for name, tensor in named}
        tensors += [p.grad for p in tensors if p.is_leaf and getattr(p, "grad", None) is not None]
        tensors = list({id(t): t for t in tensors}.values())
        live = Tensors(tensors)
        groups, largest = _groups(tensors, names)
        held = [{**group, **holder_of(one)} for group, one in largest]
    return {
        "schema": SCHEMA,
        "figures": {**figures.quick(), **figures.slow()},
        "gc": {"enabled": gc.isenabled(), "counts": list(gc.get_count()), "stats": gc.get_stats(),
               "objects": len(everything)},
        "types": {f"{t.__module__}.{t.__qualname__}": n for t, n in types.most_common(_MOST_TYPES)},
        "tensors": {"count": live.count, "bytes": live.bytes, "with_graph": live.graphs},
        "groups": groups,
        "largest": held,
    }  # fmt: skip


def _groups(tensors: list[Any], names: dict[int, str]) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], Any]]]:
    """Tensors of one kind, shape and dtype together, the most bytes first; and the largest that have no name."""
    gradients = {id(t.grad) for t in tensors if t.is_leaf and t.grad is not None}
    found: dict[tuple[str, tuple[int, ...], str, str], list[Any]] = {}
    for tensor in tensors:
        try:
            kind = _kind(tensor, names, gradients)
            key = (kind, tuple(tensor.shape), str(tensor.dtype), str(tensor.device))
            size = 0 if tensor.is_meta else tensor.untyped_storage().nbytes()  # as large as it says, and nowhere
        except Exception:  # fake, sparse, another subclass: it has no bytes
            continue
        found.setdefault(key, []).append((size, tensor))
    ranked = sorted(found.items(), key=lambda item: -sum(size for size, _ in item[1]))[:_MOST_GROUPS]
    groups = [
        {"kind": kind, "shape": list(shape), "dtype": dtype, "device": device, "count": len(members),
         "bytes": Tensors(t for _, t in members).bytes, "name": names.get(id(members[0][1]), "")}
        for (kind, shape, dtype, device), members in ranked
    ]  # fmt: skip
    loose = [(g, m[0][1]) for g, (_, m) in zip(groups, ranked, strict=True) if g["kind"] in ("tensor", "with a graph")]
    return groups, loose[:_MOST_NAMED]


def _kind(tensor: Any, names: dict[int, str], gradients: set[int]) -> str:
    if id(tensor) in gradients:
        return "gradient"
    if type(tensor).__name__ == "Parameter":
        return "parameter"
    if id(tensor) in names:
        return "buffer"
    return "with a graph" if tensor.grad_fn is not None else "tensor"
