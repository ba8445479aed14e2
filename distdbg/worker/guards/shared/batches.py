"""Recognise a batch by some of its numbers, and detect whether the model's forward got it.

Nothing is read from a device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from math import prod
from typing import Any

from distdbg.evidence.frames import module_path
from distdbg.worker.user_code import frames_above

Shape = tuple[int, ...]

#: So many things of a batch are looked at, and so many numbers of each tensor: all over it, since padding, borders and
#: prompts are the same at the head of every batch.
_THINGS = 8
_NUMBERS = 4096
_LEVELS = 8
_FRAMES = 8
#: Files below sys.path -> the function that gets what a forward was given, and its variables for that.
_FORWARDS = {
    "torch/nn/parallel/distributed.py": ("forward", "inputs"),
    "torch/distributed/fsdp/fully_sharded_data_parallel.py": ("forward", "args"),
    "torch/distributed/fsdp/_fully_shard/_fsdp_state.py": ("_pre_forward", "args"),
}


def fingerprint(batch: Any) -> int | None:
    """A checksum; None with fewer than four different numbers and words."""
    from array import array
    from zlib import crc32

    checksum, different = 0, set[object]()
    for thing in _things(batch):
        if isinstance(thing, sys.modules["torch"].Tensor):
            numbers = _numbers(thing)
            checksum = crc32(array("d", numbers).tobytes(), checksum)  # repr() takes ten times as long
            different.update(numbers)
        else:
            checksum = crc32(repr(thing)[:200].encode("utf-8", "replace"), checksum)
            different.add(thing)
    return checksum if len(different) >= 4 else None


def shapes_of(batch: Any) -> list[Shape]:
    return [tuple(thing.shape) for thing in _things(batch) if isinstance(thing, sys.modules["torch"].Tensor)]


def first_input() -> Any:
    """The first tensor argument of the forward of DDP or FSDP on the stack, or None."""
    for frame in frames_above(_FRAMES):
        function, variable = _FORWARDS.get(module_path(frame.f_code.co_filename), ("", ""))
        if frame.f_code.co_name == function:
            given, tensor = frame.f_locals, sys.modules["torch"].Tensor
            things = _things((given.get(variable, ()), given.get("kwargs", {})))
            return next((thing for thing in things if isinstance(thing, tensor) and thing.dim()), None)
    return None


def is_one_of(given: Shape, shapes: list[Shape]) -> bool:
    """Whether a tensor of this shape can be one of those, reshaped, or nearly all of it, as tokens without the last.
    Half of one is a rank's own part."""
    return any(
        (prod(given) == prod(whole) and given[0] in whole)
        or (len(given) == len(whole) and all(map(int.__le__, given, whole)) and 2 * prod(given) > prod(whole))
        for whole in shapes
    )


def _things(thing: Any) -> Iterator[Any]:
    """Tensors, numbers and words."""
    return islice(_inside(thing, _LEVELS), _THINGS)


def _inside(thing: Any, levels: int) -> Iterator[Any]:
    if isinstance(thing, (sys.modules["torch"].Tensor, str, int, float)):
        yield thing
    elif levels and isinstance(thing, dict):
        for value in islice(thing.values(), _THINGS):
            yield from _inside(value, levels - 1)
    elif levels and isinstance(thing, (list, tuple)):
        for value in thing[:_THINGS]:
            yield from _inside(value, levels - 1)
    elif levels and isinstance(getattr(thing, "data", None), dict):  # transformers' BatchEncoding
        yield from _inside(thing.data, levels - 1)


def _numbers(tensor: Any) -> list[float]:
    """Some numbers of a tensor on the CPU; their distance matches no row's length, and is the same on all ranks."""
    torch, size = sys.modules["torch"], tensor.numel()
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_complex()
    if not plain or tensor.device.type != "cpu":
        return []
    tensor = tensor.detach()
    if size > _NUMBERS:
        places = torch.arange(_NUMBERS, device="cpu") * round(size * 0.6180339887) % size
        tensor = tensor[torch.unravel_index(places, tensor.shape)]
    numbers: list[float] = tensor.reshape(-1).tolist()
    return numbers
