"""Keep only the first layers of each stack: the others are dropped once a transformers model is built.

from_pretrained builds on the meta device and loads the weights that the model has: those of dropped layers are never
read. A prefix keeps every name, number and periodic rule; it is longer where a kind of layer begins later, for two
dense layers prove nothing about a model of experts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from distdbg.worker.shrunk.stacks import stacks

_PASSES = "_distdbg_passes"


class KeepLayers:
    """`kept` has each stack: path -> (layers kept, layers before). `report` is called when it grows.

    With `loaded` no layer is dropped: the others return their input."""

    def __init__(self, count: int, report: Callable[[], None] = lambda: None, *, loaded: bool = False) -> None:
        self._count = count
        self.loaded = loaded
        self._report = report
        self.kept: dict[str, tuple[int, int]] = {}

    def patch_transformers(self, module: Any) -> None:
        plain, keep = module.PreTrainedModel.post_init, self.shorten

        def post_init(model: Any) -> None:
            keep(model)
            plain(model)

        module.PreTrainedModel.post_init = post_init

    def shorten(self, model: Any) -> None:
        """The model's own stacks; those of inner models are shorter since they were built."""
        for path, stack in list(stacks(model)):
            layers = list(stack.children())
            count = max(self._count, _last_new_kind(layers, getattr(model, "config", None)) + 1)
            if count >= len(layers) or _PASSES in stack.__dict__:
                continue
            if self.loaded:
                PassThrough(layers, count)
                stack.__dict__[_PASSES] = True  # the model around this one finds it again
            else:
                for key in list(stack._modules)[count:]:
                    del stack._modules[key]
                _shorten_config(getattr(model, "config", None), count, len(layers))
            self.kept[f"{type(model).__name__}.{path}"] = (count, len(layers))
            self._report()


def _last_new_kind(layers: list[Any], config: Any) -> int:
    """The index of the first layer of the kind that begins last."""
    kinds: dict[object, int] = {}
    lists = [v for v in vars(config).values() if _is_per_layer(v, len(layers))] if config is not None else []
    for place, layer in enumerate(layers):
        modules = tuple(type(m) for m in layer.modules())
        shapes = tuple(tuple(p.shape) for p in layer.parameters())
        kinds.setdefault((modules, shapes, tuple(str(v[place]) for v in lists)), place)
    # As many kinds as layers are no kinds: a list holds a number of its own for each.
    return max(kinds.values()) if len(kinds) < len(layers) else 0


def _is_per_layer(value: object, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(v, (str, bool, int)) for v in value)


def _shorten_config(config: Any, count: int, layers: int) -> None:
    """What the model reads while it runs (how many layers, which kind each is), and what it would save.

    A config that checks itself and refuses keeps what it has."""
    if config is None:
        return
    for name, value in list(vars(config).items()):
        try:
            if _is_per_layer(value, layers):
                setattr(config, name, value[:count])
            elif name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
                          "depth") and value == layers:  # fmt: skip
                setattr(config, name, count)
        except Exception:
            continue


#: Layers are called with their hidden states first, or by this name (transformers).
_NAME = "hidden_states"


class PassThrough:
    """One stack of layers: the first `count` run, and the others return their input.

    Those are loaded, wrapped, gathered and reduced as before, since only a layer's own forward is replaced, below any
    wrapper: FSDP gathers its parameters, DDP waits for its gradients, and an optimizer has its states. Each of its
    parameters gets a gradient of zeros. What the last running layer gives back is the form of what the others give: a
    tensor, or a tuple that begins with it (the rest of it is the previous layer's, and is returned unchanged)."""

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
