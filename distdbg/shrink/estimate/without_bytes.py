"""What cannot be computed on tensors without bytes, and whose results' shapes are known, or what a CPU keeps otherwise
than a GPU: stand-ins while a step is tracked.

    trunc_normal_   looks at what it has drawn, and draws again what lies outside
    grouped_mm      as experts use it: torch's own rule for its shape takes bfloat16 alone, kernels take more
    dropout         keeps a mask of a byte an element on a GPU, of the input's dtype on a CPU
    attention       is fused with its dropout on a GPU; a CPU keeps the whole matrix of weights for that
    autocast        computes some operators in fp32 on a GPU that keep bfloat16 on a CPU
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

#: Operators that autocast runs in fp32 on CUDA (torch's list is in aten/src/ATen/autocast_mode.h): those that models
#: apply to large tensors. Where a CPU's autocast has a rule of its own, that one stays.
_FP32_ON_CUDA = ("pow.Tensor_Scalar", "rsqrt", "exp", "log", "softplus", "cumsum", "prod", "layer_norm", "group_norm",
                 "softmax.int", "log_softmax.int")  # fmt: skip


@contextmanager
def stand_ins() -> Iterator[None]:
    """Only where this torch has the functions that they replace."""
    import torch

    grouped, attention = _grouped_mm(), torch.nn.functional.scaled_dot_product_attention
    wanted: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor),
        (torch.nn.functional, "grouped_mm", grouped),
        (torch, "_grouped_mm", grouped),
        (torch.nn.functional, "dropout", _dropout(torch.nn.functional.dropout)),
        (torch.nn.functional, "scaled_dot_product_attention", _attention(attention)),
    ]
    with ExitStack() as stack:
        for owner, name, stand_in in wanted:
            if hasattr(owner, name):
                stack.enter_context(patch.object(owner, name, stand_in))
        rules = torch.library.Library("aten", "IMPL", "AutocastCPU")
        stack.callback(rules._destroy)
        for name in _FP32_ON_CUDA:
            operator, _, overload = name.partition(".")
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                rules.impl(name, _in_fp32(getattr(getattr(torch.ops.aten, operator), overload or "default")))
        yield


def _grouped_mm() -> Callable[..., Any]:
    import torch

    class GroupedMm(torch.autograd.Function):  # type: ignore[misc]
        """Rows of experts one after another, times a matrix for each: both factors are kept for the backward."""

        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a.new_empty(a.shape[0], b.shape[-1])

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            a, b = ctx.saved_tensors
            return torch.empty_like(a), torch.empty_like(b)

    def grouped_mm(a: Any, b: Any, *given: Any, **named: Any) -> Any:
        if a.dim() == 2 and b.dim() == 3:
            return GroupedMm.apply(a, b)
        return own(a, b, *given, **named)

    own: Any = getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    return grouped_mm


def _dropout(own: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or inplace or not 0 < p < 1:
            return own(input, p, training, inplace)
        return torch.native_dropout(input, p, True)[0]

    return dropout


def _attention(own: Callable[..., Any]) -> Callable[..., Any]:
    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, _dropout_p: float = 0.0, is_causal: bool = False,
        **named: Any,
    ) -> Any:  # fmt: skip
        named.pop("dropout_p", None)
        return own(query, key, value, attn_mask, 0.0, is_causal, **named)

    return attention


def _in_fp32(operator: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def single(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16 else value

    def kernel(*given: Any, **named: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(key):
            return operator(*map(single, given), **{name: single(value) for name, value in named.items()})

    return kernel
