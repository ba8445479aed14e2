"""Measure what modules do in one forward pass: operators, bytes kept for the backward pass, FLOPs, gradients."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_NUMBER = re.compile(r"\b\d+\b")
Handler = Callable[[Any, Any, dict[str, Any]], Any]


@dataclass
class Measured:
    """What one module did.

    ops: operators with the shapes of their results. saved: bytes kept for the backward pass. gradients: names of
    parameters to which a gradient leads, with # for numbers, since layers may use other entries of a list.
    """

    ops: Counter[str] = field(default_factory=Counter)
    saved: int = 0
    flops: int = 0
    gradients: Counter[str] = field(default_factory=Counter)


def measure(call: Any, layers: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Measured]:
    """Run `call(*args, **kwargs)` and measure each of `layers` (path -> module in `call`); "" is what is in none.

    Raises what the call raises. Gradients are those of the whole call, by the names in each layer.
    """
    import torch

    measured: dict[str, Measured] = defaultdict(Measured)
    inside = [""]
    parameters = {p.untyped_storage()._cdata for p in call.parameters()}
    kept: dict[str, dict[int, tuple[Any, int]]] = defaultdict(dict)

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            # A slice of a tensor with an entry for each layer counts as what it is, not as all of it.
            size = min(storage.nbytes(), tensor.numel() * tensor.element_size())
            _, known = kept[inside[-1]].get(storage._cdata, (storage, 0))
            kept[inside[-1]][storage._cdata] = (storage, max(known, size))  # held, or another gets its address
        return tensor

    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_entered(layers, inside))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor))
        stack.enter_context(_counting(measured, inside))
        result = call(*args, **kwargs)
    reached = _leaves_of_the_graph(result)
    for path, layer in layers.items():
        measured[path].saved = sum(size for _, size in kept[path].values())
        names = layer.named_parameters(remove_duplicate=False)
        measured[path].gradients = Counter(_NUMBER.sub("#", name) for name, p in names if id(p) in reached)
    return measured


def _leaves_of_the_graph(result: Any) -> set[int]:
    """Ids of the tensors to which a backward pass from the results leads."""
    reached: set[int] = set()
    todo = [tensor.grad_fn for tensor in tensors_in(result)]
    seen = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            reached.add(id(leaf))
        todo.extend(following for following, _ in node.next_functions)
    return reached


def _counting(measured: Mapping[str, Measured], inside: list[str]) -> Any:
    from torch.utils.flop_counter import flop_registry

    def count(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = function(*args, **kwargs)
        here = measured[inside[-1]]
        if function._overloadpacket in flop_registry:
            here.flops += flop_registry[function._overloadpacket](*args, **kwargs, out_val=result)
        here.ops[_operation(function, tuple(tensor.shape for tensor in tensors_in(result)))] += 1
        return result

    return operator_mode(count)


@cache
def _operation(function: Any, shapes: tuple[Any, ...]) -> str:
    return f"{function} {','.join(str(list(shape)) for shape in shapes)}"


@contextmanager
def _entered(layers: Mapping[str, Any], inside: list[str]) -> Iterator[None]:
    """While a layer's forward runs, its path is the last of `inside`."""
    handles = []
    for path, module in layers.items():
        handles.append(module.register_forward_pre_hook(lambda _m, _a, p=path: inside.append(p)))
        handles.append(module.register_forward_hook(lambda _m, _a, _o: inside.pop() and None, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def operator_mode(call: Handler) -> Any:
    """While it is on, `call(function, args, kwargs)` runs each of torch's operators."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorMode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return call(function, args, kwargs or {})

    return OperatorMode()


def tensors_in(value: Any) -> list[Any]:
    """The tensors in an operator's result or in a model's output."""
    import torch

    found: list[Any] = []
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, Mapping):
        found += _tensors_of(value.values())
    elif isinstance(value, list | tuple):
        found += _tensors_of(value)
    return found


def _tensors_of(values: Iterable[Any]) -> list[Any]:
    return [tensor for value in values for tensor in tensors_in(value)]
