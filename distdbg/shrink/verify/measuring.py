"""Measure one forward and backward pass on the meta device: what each layer does, keeps, and passes gradients to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from distdbg.plain_text import first_words
from distdbg.shrink.verify.values import KnownValues, operator_mode, tensors_in


@dataclass
class Measured:
    """By layer path: the operators run in it with their output shapes, and the bytes kept for the backward pass.

    flops: of the forward pass, by layer path and "" for what is in none.

    gradients: names of parameters that got one. ran: paths of modules whose forward was called.
    """

    ops: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    saved: dict[str, int] = field(default_factory=dict)
    flops: Counter[str] = field(default_factory=Counter)
    gradients: set[str] = field(default_factory=set)
    why_no_gradients: str = ""
    forward_done: bool = False


#: names of outputs: `image_outputs` (transformers from 5.24 on), `image_hidden_states`
_OF_A_TOWER = re.compile(r"(image|video|audio|vision|speech)_(outputs?|hidden_states|features)")


def measure(model: Any, call: Any, inputs: Mapping[str, Any], layers: list[str]) -> Measured:
    """Run `call(**inputs)`, where `call` is the model or a part of it. Raises what its forward raises."""
    import torch

    found = Measured()
    inside: list[str] = []
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    seen: dict[str, dict[int, tuple[Any, int]]] = defaultdict(dict)

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if inside and storage._cdata not in parameters:
            # A slice of a tensor with an entry for each layer counts as what it is, not as all of it.
            size = min(storage.nbytes(), tensor.numel() * tensor.element_size())
            known = seen[inside[-1]].get(storage._cdata, (storage, 0))
            seen[inside[-1]][storage._cdata] = (storage, max(known[1], size))  # held, or another gets its address
        return tensor

    model.train()
    turn_off_dropout(model)
    with ExitStack() as stack:
        stack.enter_context(_entered(model, layers, inside))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t))
        stack.enter_context(_autocast())
        stack.enter_context(_counting(found, inside))
        output = call(**_placed(inputs))
        found.forward_done = True
        try:
            sum(t.float().sum() for t in _results(output)).backward()
        except Exception as error:
            found.why_no_gradients = f"{type(error).__name__}: {first_words(str(error), 120)}"
    found.saved = {path: sum(size for _, size in kept.values()) for path, kept in seen.items()}
    found.gradients = {name for name, p in model.named_parameters(remove_duplicate=False) if p.grad is not None}
    return found


def _results(output: Any) -> list[Any]:
    """Tensors that a loss may be made of. What a tower gave, which a model may give beside them, is none: it would give
    the tower its gradients where nothing of it reaches the text."""
    aside = [name for name in output if _OF_A_TOWER.fullmatch(name)] if isinstance(output, Mapping) else []
    rest = {name: value for name, value in output.items() if name not in aside} if aside else output
    found = [t for t in tensors_in(rest) if t.requires_grad]
    return found or [t for t in tensors_in(output) if t.requires_grad]


def dry(call: Any, inputs: Mapping[str, Any]) -> Any:
    """The result of `call(**inputs)`, of a model or one of its methods; nothing is counted. Raises what it raises."""
    import torch

    model = getattr(call, "__self__", call)
    if not is_on_meta(model):
        with torch.no_grad():
            return call(**as_the_weights(model, inputs))

    with torch.no_grad(), _autocast(), _counting(Measured(), []):
        return call(**_placed(inputs))


def as_the_weights(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Pixels and samples in the type of the model's weights."""
    import torch

    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    is_float = {name: isinstance(v, torch.Tensor) and v.is_floating_point() for name, v in inputs.items()}
    return {name: value.to(dtype) if is_float[name] else value for name, value in inputs.items()}


def is_on_meta(model: Any) -> bool:
    """Whether it has no weights. What is not a module is computed on meta."""
    import torch

    return not isinstance(model, torch.nn.Module) or all(p.is_meta for p in model.parameters())


@contextmanager
def _autocast() -> Iterator[None]:
    """Autocast for the meta device, which torch refuses even where it is switched off: as for the CPU."""
    import torch

    plain = torch.autocast.__init__

    def begin(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        plain(self, "cpu" if device_type == "meta" else device_type, *args, **kwargs)

    torch.autocast.__init__ = begin
    try:
        yield
    finally:
        torch.autocast.__init__ = plain


def _placed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What gradients may pass through is where the parameters are; its content is remembered."""
    import torch

    return {
        name: value.to("meta") if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def _counting(found: Measured, inside: list[str]) -> Any:
    from torch.utils.flop_counter import flop_registry

    values = KnownValues()

    def count(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = values.call(function, args, kwargs)
        if function._overloadpacket in flop_registry and not found.forward_done:
            cost = flop_registry[function._overloadpacket](*args, **kwargs, out_val=result)
            found.flops[inside[-1] if inside else ""] += cost
        if inside:
            found.ops[inside[-1]][_operation(function, tuple(t.shape for t in tensors_in(result)))] += 1
        return result

    return operator_mode(count)


@cache
def _operation(function: Any, shapes: tuple[Any, ...]) -> str:
    return f"{function} {','.join(str(list(shape)) for shape in shapes)}"


@contextmanager
def _entered(model: Any, layers: list[str], inside: list[str]) -> Iterator[None]:
    """While a layer's forward runs, its path is the last of `inside`."""
    handles = []
    for path in layers:
        module = model.get_submodule(path)
        handles.append(module.register_forward_pre_hook(lambda _m, _a, p=path: inside.append(p)))
        handles.append(module.register_forward_hook(lambda _m, _a, _o: inside.pop() and None, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def turn_off_dropout(model: Any) -> None:
    """Rates that rise with the layer's number are no difference in kind."""
    holders = [h for m in model.modules() for h in (m, getattr(m, "config", None)) if h is not None]
    for holder in holders:
        for name, value in list(vars(holder).items()):
            if isinstance(value, float) and (name in ("p", "drop_prob") or name.endswith("layerdrop")):
                setattr(holder, name, 0.0)
            if isinstance(value, float) and name.startswith("mask_") and name.endswith("_prob"):
                setattr(holder, name, 0.0)  # parts of a spectrum left out by chance
