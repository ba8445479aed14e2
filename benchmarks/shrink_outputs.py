"""Compare the outputs of a small model with those of the full model whose other layers are identities.

This judges the check `outputs` of shrink-model, so it uses none of its code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

#: largest distance of two equal outputs, relative to their norm: the same kernels run on one thread
TOLERANCE = 1e-4
#: path of a stack -> (layers of the full model, layers that the small one has)
Stacks = Mapping[str, tuple[int, Sequence[int]]]


class NoIdentityError(Exception):
    """The results of a layer cannot be made from its arguments alone."""


@dataclass
class _LayerCalls:
    """Arguments and results of the layers of one model, in the order of the calls."""

    arguments: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    passed: list[tuple[str, int, Any, Any]] = field(default_factory=list)

    @contextmanager
    def recording(self, model: Any, numbers: Mapping[str, Sequence[int]]) -> Iterator[None]:
        def record(path: str, number: int) -> Callable[..., None]:
            def hook(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
                self.arguments.setdefault(path, {}).setdefault(type(layer).__name__, (args, kwargs, result))
                first = result if _is_tensor(result) else next(filter(_is_tensor, result), None)
                self.passed.append((path, number, _main(args, kwargs), first))

            return hook

        with ExitStack() as hooks:
            for path, number in ((path, number) for path, those in numbers.items() for number in those):
                layer = model.get_submodule(f"{path}.{number}")
                hooks.callback(layer.register_forward_hook(record(path, number), with_kwargs=True).remove)
            yield


def compare_outputs(full: Any, small: Any, stacks: Stacks, inputs: Mapping[str, Any]) -> str:
    """`pass`, `wrong: …` or `not run: …`. Both models have their weights. `pass` names stacks that no output needs."""
    here, there = _LayerCalls(), _LayerCalls()
    with here.recording(small, {path: range(len(kept)) for path, (_, kept) in stacks.items()}):
        outputs = forward(small, inputs)
    left = {path: sorted({*range(layers)} - {*kept}) for path, (layers, kept) in stacks.items()}
    with _identities(full, left, here), there.recording(full, {p: range(layers) for p, (layers, _) in stacks.items()}):
        expected = forward(full, inputs)
    difference = _difference(expected, outputs)
    if difference is None:
        return "not run: no output has the same form in both"
    if difference:
        if _difference(outputs, forward(small, inputs, seed=1)):
            return "not run: the outputs depend on random numbers"
        if changed := _changed_between(there, left):
            return f"not run: the model changes the result of {changed} before the next layer"
        return f"wrong: {difference}"
    unused = []
    for path, (_, kept) in stacks.items():
        with _identities(full, {**left, path: [*left[path], kept[-1]]}, here):
            if not _difference(expected, forward(full, inputs)):
                unused.append(path)
    return f"pass; no output depends on {', '.join(unused)}" if unused else "pass"


def forward(model: Any, inputs: Mapping[str, Any], seed: int = 0) -> Any:
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        return model.eval()(**inputs)


@contextmanager
def _identities(model: Any, numbers: Mapping[str, Sequence[int]], calls: _LayerCalls) -> Iterator[None]:
    """Replace these layers by identities, which return what a kept layer of their class does for their arguments."""
    layers = [(path, model.get_submodule(f"{path}.{number}")) for path, those in numbers.items() for number in those]
    for path, layer in layers:
        known = calls.arguments.get(path, {})
        example = known.get(type(layer).__name__) or next(iter(known.values()), None)
        layer.forward = _identity(*example) if example else _raise_unknown
    try:
        yield
    finally:
        for _, layer in layers:
            del layer.forward


def _raise_unknown(*_args: Any, **_kwargs: Any) -> None:
    raise NoIdentityError("the full model calls a layer, and the small model calls none of its stack")


def _identity(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Callable[..., Any]:
    given = dict(enumerate(args)) | kwargs
    if _is_tensor(result):
        source = _source(given, result, [])
        return lambda *a, **k: (dict(enumerate(a)) | k)[source]
    if not isinstance(result, tuple | list):
        raise NoIdentityError(f"a layer returns a {type(result).__name__}")
    sources: list[Any] = []
    for value in result:
        sources.append(_source(given, value, sources) if _is_tensor(value) else None)

    def forward(*a: Any, **k: Any) -> Any:
        now = dict(enumerate(a)) | k
        return type(result)(v if s is None else now[s] for s, v in zip(sources, result, strict=True))

    return forward


def _source(given: Mapping[Any, Any], value: Any, taken: Sequence[Any]) -> Any:
    """The argument that a result stands for: the same tensor, else the first one of its shape and type."""
    tensors = {name: one for name, one in given.items() if _is_tensor(one) and name not in taken}
    alike = [name for name, one in tensors.items() if (one.shape, one.dtype) == (value.shape, value.dtype)]
    same = [name for name in alike if tensors[name] is value]
    if not alike:
        raise NoIdentityError(f"a layer returns a tensor of the shape {tuple(value.shape)}, which no argument has")
    return (same or alike)[0]


def _main(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return next(filter(_is_tensor, (*args, *kwargs.values())), None)


def _changed_between(calls: _LayerCalls, left: Mapping[str, Sequence[int]]) -> str:
    """The first identity whose result is not what the next layer of the stack is given."""
    import torch

    for (path, number, _, result), (after, following, given, _) in zip(calls.passed, calls.passed[1:], strict=False):
        is_next = (after, following) == (path, number + 1) and number in left[path]
        if is_next and not (result.shape == given.shape and torch.equal(result, given)):
            return f"{path}.{number}"
    return ""


def _difference(a: Any, b: Any) -> str | None:
    """The first output that differs; empty if none does, None if nothing can be compared."""
    import torch

    pairs = list(_pairs(a, b, ""))
    for name, first, second in pairs:
        if first.is_floating_point():
            one, other = first.double(), second.double()
            finite = one.isfinite() & other.isfinite()
            distance, size = (float(t[finite].norm()) for t in (one - other, one))
            if not torch.equal(one.isfinite(), other.isfinite()) or distance > TOLERANCE * size:
                return f"{name} differs by {distance / size if size else distance:.2g} of its norm"
        elif not torch.equal(first, second):
            return f"{name} differs"
    return "" if pairs else None


def _pairs(a: Any, b: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Tensors at the same place of two outputs. Lists of another length have an entry a layer, and are left out."""
    if _is_tensor(a) and _is_tensor(b):
        if a.shape == b.shape:
            yield name.strip("."), a, b
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in (key for key in a if key in b):
            yield from _pairs(a[key], b[key], f"{name}.{key}")
    elif isinstance(a, tuple | list) and isinstance(b, tuple | list) and len(a) == len(b):
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _pairs(one, other, f"{name}.{number}")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
