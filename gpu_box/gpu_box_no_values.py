"""What torch answers on devices that compute nothing: a script goes the way of a healthy job, the same on all ranks.

trunc_normal_ draws once: its loop would read arbitrary values. With GPU_BOX_VALUES=0 checks find nothing: isnan, isinf
and any are false, isfinite and all are true. Results whose size depends on values are as large as they can be: each
element is not zero, selected by a mask, or different from the others.

build.py puts this file beside gpu_box_shadow.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


def begin() -> None:
    if os.environ.get("GPU_BOX_VALUES") == "0":
        _find_nothing_wrong()
        _bound_sizes()
    _name_workspaces()
    init: Any = sys.modules["torch.nn.init"]
    init._no_grad_trunc_normal_ = _in_one_round(init._no_grad_trunc_normal_)


def _name_workspaces() -> None:
    """Add to a snapshot of memory which blocks torch has given to cuBLAS: device, address, bytes."""
    memory: Any = sys.modules["torch.cuda.memory"]
    snapshot, library = memory._snapshot, ctypes.CDLL("libgpubox.so")
    library.gpuBoxIsWorkspace.argtypes = (ctypes.c_int, ctypes.c_void_p)
    torch_cuda = ctypes.CDLL(str(Path(sys.modules["torch"].__file__ or "").parent / "lib" / "libtorch_cuda.so"))
    # An older torch allocates one for each product of cublasLt, and frees it at once.
    kinds = (0, 1) if hasattr(torch_cuda, "_ZN2at4cuda22getCUDABlasLtWorkspaceEv") else (0,)

    @functools.wraps(snapshot)
    def with_workspaces(*args: Any, **kwargs: Any) -> Any:
        found = snapshot(*args, **kwargs)
        found["gpu_box_workspaces"] = [
            (segment["device"], block["address"], block.get("requested_size", block["size"]))
            for segment in found["segments"]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
            and any(library.gpuBoxIsWorkspace(kind, block["address"]) for kind in kinds)
        ]
        return found

    memory._snapshot = with_workspaces


def _find_nothing_wrong() -> None:
    torch: Any = sys.modules["torch"]
    for name, value in (("isnan", False), ("isinf", False), ("any", False), ("isfinite", True), ("all", True)):
        for owner in (torch, torch.Tensor):
            setattr(owner, name, _filled(getattr(owner, name), value))


def _filled(check: Callable[..., Any], value: bool) -> Callable[..., Any]:
    """Of a check: its result is made by a kernel, which computes nothing, and then filled, which the box does."""
    torch: Any = sys.modules["torch"]

    @functools.wraps(check)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = check(*args, **kwargs)
        if not torch.compiler.is_compiling() and getattr(result, "is_cuda", False) and result.dtype is torch.bool:
            with torch.no_grad():
                result.fill_(value)
        return result

    return call


#: Of _bound_sizes: what it has registered goes when it goes.
_LIBRARIES: list[Any] = []


def _bound_sizes() -> None:
    """torch reads the size on the device, where nothing was computed: it would ask for any amount of memory."""
    torch: Any = sys.modules["torch"]
    library = torch.library.Library("aten", "IMPL")
    _LIBRARIES.append(library)

    def indices(x: Any, *shape: int) -> Any:
        return torch.zeros(shape, dtype=torch.long, device=x.device)

    def nonzero(self: Any) -> Any:
        return indices(self, self.numel(), self.dim())

    def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
        return indices(repeats, repeats.numel() if output_size is None else output_size)

    def bincount(self: Any, weights: Any = None, minlength: int = 0) -> Any:
        counts = indices(self, max(minlength, 1))
        return counts if weights is None else counts.to(weights.dtype)

    def unique(self: Any, _sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        inverse = indices(self, *self.shape) if return_inverse else indices(self, 0)
        counts = indices(self, self.numel()) if return_counts else indices(self, 0)
        return self.reshape(-1).clone(), inverse, counts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it had them already
        for name, of in (("nonzero", nonzero), ("repeat_interleave.Tensor", repeat_interleave), ("bincount", bincount),
                         ("_unique2", unique)):  # fmt: skip
            library.impl(name, of, "CUDA")


def _in_one_round(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of trunc_normal_: it draws until all values are inside the limits, which arbitrary values may never be."""

    @functools.wraps(function)
    def draw(tensor: Any, mean: float, std: float, *limits: Any, **generator: Any) -> Any:
        if tensor.device.type != "cuda":
            return function(tensor, mean, std, *limits, **generator)
        import torch

        with torch.no_grad():
            drawn = tensor.normal_(mean, std)
            again = torch.empty_like(drawn).normal_(mean, std)
            return tensor.copy_(torch.where(drawn.abs() > std, again, drawn))

    return draw
