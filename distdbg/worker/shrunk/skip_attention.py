"""Replace attention by a tensor of the right shape, connected to the graph, with the right memory saved.

Every tensor that real attention would give a gradient gets zeros, so all parameters have gradients: DDP and FSDP reduce
the same tensors. The backward saves what fused attention saves: query, key, value, its output and the logarithms of the
sums. The output is zeros: a layer returns its input.

transformers gets its attention function from AttentionInterface and passes the module; plain modules call torch's
scaled_dot_product_attention or flex_attention, and the module is found one frame above.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from distdbg.worker.shrunk.stacks import PLACE

#: Written into a module's dict at its first attention: whether that is skipped.
SKIPPED = "_distdbg_skips"


def parse(text: str) -> Callable[[int, int], bool]:
    """`all`, `all-but-last` or a number of layers, from the first on: (place, layers) -> skipped. Raises ValueError."""
    if text == "all":
        return lambda place, layers: True  # noqa: ARG005
    if text == "all-but-last":
        return lambda place, layers: place < layers - 1
    count = int(text)
    return lambda place, layers: place < count  # noqa: ARG005


class SkipAttention:
    """`skipped` and `kept`: the layers' places that have been seen. `unplaced`: modules outside any stack."""

    def __init__(self, text: str) -> None:
        self._skips = parse(text)
        self.skipped: set[int] = set()
        self.kept: set[int] = set()
        self.unplaced = 0

    def patch_transformers(self, module: Any) -> None:
        plain = module.AttentionInterface.get_interface
        make_ready()

        def get_interface(interface: Any, implementation: Any, default: Any) -> Any:
            return functools.partial(_attention, plain(interface, implementation, default), self.of)

        module.AttentionInterface.get_interface = get_interface

    def patch_functional(self, module: Any) -> None:
        module.scaled_dot_product_attention = self._plain(module.scaled_dot_product_attention)

    def patch_flex(self, module: Any) -> None:
        module.flex_attention = self._plain(module.flex_attention)

    def of(self, module: Any) -> bool:
        """Is this module's attention skipped? Decided once a module."""
        known = module.__dict__.get(SKIPPED)
        if known is not None:
            return bool(known)
        place = module.__dict__.get(PLACE)
        if place is None:
            self.unplaced += 1
            return False
        skips = self._skips(*place)
        (self.skipped if skips else self.kept).add(place[0])
        module.__dict__[SKIPPED] = skips
        return skips

    def _plain(self, original: Any) -> Any:
        @functools.wraps(original)
        def attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            module = _caller()
            if module is not None and self.of(module):
                return skipped(query, key, value, heads_last=False)
            return original(query, key, value, *args, **kwargs)

        return attention


def _caller() -> Any:
    """The module whose method called torch's attention, where it is in a stack."""
    frame = sys._getframe(2)
    names = frame.f_code.co_varnames[:1] if frame.f_code.co_argcount else ()
    module = frame.f_locals.get(names[0]) if names else None
    return module if hasattr(module, "_parameters") and PLACE in module.__dict__ else None


def _attention(real: Any, skips: Callable[[Any], bool], module: Any, *args: Any, **kwargs: Any) -> Any:
    """In the place of transformers' attention function, whose first arguments are query, key and value."""
    if not skips(module) or len(args) < 3:
        return real(module, *args, **kwargs)
    others = [v for v in kwargs.values() if getattr(v, "requires_grad", False)]
    others += [p for p in module._parameters.values() if p is not None]
    return skipped(*args[:3], *others, heads_last=True), None


def skipped(query: Any, key: Any, value: Any, *others: Any, heads_last: bool) -> Any:
    """query: (batch, heads, length, width); the output has the value's width, and with `heads_last` length before
    heads, as transformers wants it. `others` get gradients of zeros, too."""
    if _Skipping.function is None:
        make_ready()
    return _Skipping.function.apply(heads_last, query, key, value, *others)


class _Skipping:
    """The function below, which needs torch to be defined."""

    function: Any = None


def make_ready() -> None:
    """Before the first step: torch.compile traces no class that is being made."""
    if _Skipping.function is None:
        _Skipping.function = _function()


def _function() -> Any:
    import torch

    class Skipped(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, heads_last: bool, query: Any, key: Any, value: Any, *others: Any) -> Any:
            batch, heads, length = query.shape[:-1]
            # Fused attention lays its output out by length, so that what follows needs no copy of it.
            output = query.new_zeros((batch, length, heads, value.shape[-1]))
            sums = query.new_empty((batch, heads, length), dtype=torch.float32)
            ctx.save_for_backward(query, key, value, output, sums, *others)
            return output if heads_last else output.transpose(1, 2)

        @staticmethod
        def backward(ctx: Any, _gradient: Any) -> Any:
            query, key, value, _, _, *others = ctx.saved_tensors
            return None, *(torch.zeros_like(tensor) for tensor in (query, key, value, *others))

    return Skipped
