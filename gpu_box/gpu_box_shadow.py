"""Right values on simulated devices, for programs that look at values: each CUDA operator is done again on the CPU.

Kernels of the box do nothing, so what a device computed is stale memory. Device memory is host memory, however: after
the real operator, which allocates and enqueues as always, the same operator is called on CPU tensors over the same
bytes, and its result is copied into the storage that the CUDA operator allocated. Operators whose result's size depends
on values (nonzero, masked indexing) take it from the CPU.

build.py puts this file beside torch, which calls `autoload` when it is imported (torch's entry point "torch.backends");
GPU_BOX_SHADOW=1 switches it on. It costs a synchronisation for each operator: for small models. Without it only the
collectives of objects are done so: torch computes on the device how long a pickled object is. What else torch answers
then, gpu_box_no_values.py says; what it does if only some ranks are processes, gpu_box_ranks.py.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any


def autoload() -> None:
    ranks = importlib.import_module("gpu_box_ranks")
    ranks.begin()
    if os.environ.get("GPU_BOX_SHADOW") == "1":
        shadow().__enter__()  # for this thread, and for backward passes that it starts, until the process ends
        return
    importlib.import_module("gpu_box_no_values").begin()
    for name, function in list(vars(sys.modules.get("torch.distributed.distributed_c10d")).items()):
        if name.endswith(("_object", "_object_list")) and not name.startswith("_"):  # all_gather_object, …
            ranks.replace(function, _with_values(function))


def _with_values(function: Callable[..., Any]) -> Callable[..., Any]:
    library = ctypes.CDLL("libgpubox.so")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        library.gpuBoxMovesAll(1)
        try:
            with shadow():
                return function(*args, **kwargs)
        finally:
            library.gpuBoxMovesAll(-1)

    return call


@functools.cache
def _mode() -> Any:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

    aten = torch.ops.aten
    # These move or allocate memory, and the box does that.
    real = {
        aten._to_copy, aten.copy_, aten._local_scalar_dense, aten.empty, aten.empty_like, aten.empty_strided,
        aten.new_empty, aten.new_empty_strided, aten.detach, aten.record_stream, aten.is_pinned, aten._pin_memory,
    }  # fmt: skip
    sized_by_values = {
        aten.nonzero, aten.unique_dim, aten._unique2, aten.unique_consecutive, aten.masked_select, aten.index,
        aten.repeat_interleave, aten.bincount,
    }  # fmt: skip
    # FSDP's own copies have no CPU version under their name.
    on_cpu_as = {
        "fsdp.split_with_sizes_copy.default": torch.split_with_sizes_copy,
        "fsdp.chunk_cat.default": torch._chunk_cat,
    }

    def on_cuda(x: object) -> bool:
        return isinstance(x, torch.Tensor) and x.device.type == "cuda"

    def alias(x: torch.Tensor) -> torch.Tensor:
        """A CPU tensor over the same bytes."""
        size = x.untyped_storage().nbytes()
        if not size or not x.numel():
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
        buffer = (ctypes.c_char * size).from_address(x.untyped_storage().data_ptr())
        whole = torch.frombuffer(buffer, dtype=torch.uint8)[: size // x.element_size() * x.element_size()]
        return whole.view(x.dtype).as_strided(x.shape, x.stride(), x.storage_offset())

    def device_of(flat: list[Any]) -> torch.device | None:
        named = (torch.device(x) for x in flat if isinstance(x, (torch.device, str)) and str(x).startswith("cuda"))
        return next((x.device for x in flat if on_cuda(x)), None) or next(named, None)

    def converts(packet: Any, flat: list[Any], kwargs: dict[str, Any]) -> bool:
        """A change of type or layout on one device is a kernel, not a copy."""
        if packet is aten.copy_:
            to, source = flat[0], flat[1]
            plain = on_cuda(to) and on_cuda(source) and to.dtype == source.dtype
            return on_cuda(to) and on_cuda(source) and not (plain and to.is_contiguous() and source.is_contiguous())
        target = kwargs.get("device")
        return packet is aten._to_copy and on_cuda(flat[0]) and (not target or torch.device(target).type == "cuda")

    class Shadow(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            packet = func.overloadpacket
            flat, spec = tree_flatten((args, kwargs))
            if any(isinstance(x, torch.Tensor) and type(x) not in (torch.Tensor, torch.nn.Parameter) for x in flat):
                fake = any(isinstance(x, FakeTensor) for x in flat)
                return func(*args, **kwargs) if fake else NotImplemented  # the tensors inside a DTensor come again
            device = device_of(flat)
            known = func.namespace in ("aten", "prims", "fsdp") and not func.is_view
            if device is None or not known or (packet in real and not converts(packet, flat, kwargs)):
                return func(*args, **kwargs)
            torch.cuda.current_stream(device).synchronize()  # collectives that were queued before count, too
            arguments = func._schema.arguments
            writes = any(a.alias_info is not None and a.alias_info.is_write for a in arguments)
            writes = writes or func.namespace == "fsdp"
            copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

            def host(x: Any) -> Any:
                if on_cuda(x):
                    if id(x) not in copies:
                        copies[id(x)] = x, alias(x).clone() if writes else alias(x)
                    return copies[id(x)][1]
                return torch.device("cpu") if isinstance(x, torch.device) and x.type == "cuda" else x

            host_args, host_kwargs = tree_unflatten([host(x) for x in flat], spec)
            try:
                wanted = on_cpu_as.get(str(func), func)(*host_args, **host_kwargs)
            except (NotImplementedError, RuntimeError):  # fused optimizers, flash attention: no CPU version, no values
                return func(*args, **kwargs)
            if packet in sized_by_values:
                return tree_map_only(torch.Tensor, lambda t: t.to(device), wanted)
            result = func(*args, **kwargs)
            torch.cuda.current_stream(device).synchronize()
            for x, h in copies.values() if writes else ():
                alias(x).copy_(h)
            for x, h in zip(tree_flatten(result)[0], tree_flatten(wanted)[0], strict=False):
                if on_cuda(x) and isinstance(h, torch.Tensor) and id(x) not in copies and x.shape == h.shape:
                    alias(x).copy_(h)
            return result

    return Shadow


def shadow() -> Any:
    """A context in which operators are done on the CPU, too."""
    return _mode()()
