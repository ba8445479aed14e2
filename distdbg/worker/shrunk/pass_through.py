"""Replace layers by ones that return their input: they are loaded, wrapped, gathered and reduced as before.

Only a layer's own forward is replaced, below any wrapper. So FSDP gathers its parameters, DDP waits for its gradients,
and an optimizer has its states. Each of its parameters gets a gradient of zeros.
"""

from __future__ import annotations

import functools
from typing import Any

#: Layers are called with their hidden states first, or by this name (transformers).
_NAME = "hidden_states"


class PassThrough:
    """One stack of layers: the first `count` run. What the last of them gives back is the form of what the others give:
    a tensor, or a tuple that begins with it (the rest of it is the previous layer's, and is returned unchanged)."""

    def __init__(self, layers: list[Any], count: int) -> None:
        self._rest: tuple[Any, ...] | None = None
        self._known = False
        self._function = _function()  # here, since torch.compile traces no class that is being made
        self._watch(layers[count - 1])
        for layer in layers[count:]:
            self._replace(layer)

    def _watch(self, layer: Any) -> None:
        plain = layer.forward

        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            output = plain(*args, **kwargs)
            self._known = hasattr(output, "new_zeros") or type(output) is tuple
            self._rest = tuple(map(_detached, output[1:])) if type(output) is tuple else None
            return output

        layer.forward = forward

    def _replace(self, layer: Any) -> None:
        plain = layer.forward

        @functools.wraps(plain)
        def forward(*args: Any, **kwargs: Any) -> Any:
            states = args[0] if args else kwargs.get(_NAME)
            if not self._known or not hasattr(states, "new_zeros"):
                return plain(*args, **kwargs)
            passed = self._function.apply(states, *layer.parameters())
            return passed if self._rest is None else (passed, *self._rest)

        layer.forward = forward


def _detached(value: Any) -> Any:
    """Its graph is the running layer's, and may be gone when this layer is computed again for a checkpoint."""
    return value.detach() if hasattr(value, "detach") else value


@functools.cache
def _function() -> Any:
    import torch

    class Passed(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, states: Any, *parameters: Any) -> Any:
            # Not the parameters: FSDP frees what they hold after the forward pass.
            ctx.forms = [(p.shape, p.dtype, p.device, p.requires_grad) for p in parameters]
            return states.view_as(states)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            zeros = (torch.zeros(s, dtype=t, device=d) if needed else None for s, t, d, needed in ctx.forms)
            return gradient, *zeros

    return Passed
