"""Build the full model around the weights of the small one: its other layers are identities, or copies of a kept layer.

The full config's own constructor makes it, so that what depends on a layer's number or on the number of layers is what
it is there. Parameters are shared with the small model: the full one takes no memory of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.probe.building import Builder
from distdbg.shrink.verify.kept import KeptStack

#: tensor outside of the layers, or in one -> [[dimension, entries that the small model has, number in the full one]]
Cuts = Mapping[str, Sequence[Sequence[Any]]]
#: standard deviation of random weights, where a kind has no layer in the small model
_RANDOM_STD = 0.02


class NotAnIdentityError(LookupError):
    """A layer cannot be replaced by an identity: its results are not what the next layer is given."""


@dataclass(frozen=True)
class LayerForm:
    """How the results of a layer correspond to its inputs.

    sources: for each leaf of the results, the place of the input that it stands for, or None and a constant. main: the
    place of the input that the first tensor of the results stands for.
    """

    spec: Any
    sources: tuple[tuple[Any, Any], ...]
    main: Any

    def pass_on(self, given: tuple[Any, Any]) -> Any:
        """Return the inputs in the form of results."""
        from torch.utils._pytree import tree_unflatten

        leaves = _leaves(given)
        if any(place is not None and place not in leaves for place, _ in self.sources):
            raise NotAnIdentityError("layers of one stack are called with different arguments")
        return tree_unflatten([value if place is None else leaves[place] for place, value in self.sources], self.spec)


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, by its number in the stack: its main input and the result that stands for it."""

    layer: int
    given: Any
    result: Any


class WatchedLayers:
    """Calls of the layers of stacks, in order, and the forms of layers by class; while `watching`."""

    def __init__(self) -> None:
        self.calls: dict[str, list[LayerCall]] = {}
        self.forms: dict[str, dict[str, LayerForm]] = {}
        self.problems: list[NotAnIdentityError] = []

    @contextmanager
    def watching(self, model: Any, layers: Mapping[str, Sequence[int]]) -> Iterator[None]:
        """layers: path of a stack -> numbers of layers to watch."""
        handles = [
            model.get_submodule(f"{path}.{number}").register_forward_hook(self._hook(path, number), with_kwargs=True)
            for path, numbers in layers.items()
            for number in numbers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, path: str, number: int) -> Any:
        def see(layer: Any, args: Any, kwargs: Any, result: Any) -> None:
            from torch.utils._pytree import tree_leaves

            try:
                form = form_of((args, kwargs), result)
            except NotAnIdentityError as error:
                self.problems.append(error)
                return
            self.forms.setdefault(path, {}).setdefault(type(layer).__name__, form)
            at = next(i for i, (place, _) in enumerate(form.sources) if place == form.main)
            main = _leaves((args, kwargs))[form.main]
            self.calls.setdefault(path, []).append(LayerCall(number, main, tree_leaves(result)[at]))

        return see


def form_of(given: tuple[Any, Any], result: Any) -> LayerForm:
    """given: (args, kwargs). Raises NotAnIdentityError if a tensor of the results has the form of no input."""
    import torch
    from torch.utils._pytree import tree_flatten

    inputs = _leaves(given)
    leaves, spec = tree_flatten(result)
    sources: list[tuple[Any, Any]] = []
    main = None
    for leaf in leaves:
        place = next((p for p, value in inputs.items() if value is leaf and not isinstance(leaf, bool | int)), None)
        if isinstance(leaf, torch.Tensor):
            if place is None:
                taken = [p for p, _ in sources]
                alike = (p for p, t in inputs.items() if _is_alike(t, leaf) and p not in taken)
                place = next(alike, None)
            if place is None:
                raise NotAnIdentityError("a layer returns a tensor of another form than its inputs")
            main = place if main is None else main
        elif place is None and not isinstance(leaf, bool | int | float | str | None):
            raise NotAnIdentityError(f"a layer returns a new {type(leaf).__name__}")
        sources.append((place, leaf if place is None else None))
    if main is None:
        raise NotAnIdentityError("a layer returns no tensor")
    return LayerForm(spec, tuple(sources), main)


def _is_alike(value: Any, leaf: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (leaf.shape, leaf.dtype)


def _leaves(tree: Any) -> dict[Any, Any]:
    from torch.utils._pytree import tree_flatten_with_path

    return dict(tree_flatten_with_path(tree)[0])


class FullModel:
    """The full model with the weights of the small one.

    A layer that is not kept has those of the first kept layer of its kind, or random ones if there is none.
    """

    def __init__(self, builder: Builder, small: Any, stacks: Sequence[KeptStack], cuts: Cuts) -> None:
        self.stacks = stacks
        self.model = builder.without_weights(small.dtype).eval()
        self._cuts = cuts
        self._kept: dict[str, Sequence[int]] = {}
        for stack in stacks:
            self._kept |= {stack.path: stack.kept, **stack.entries}
        self._stand_ins = {stack.path: dict(_stand_ins(stack)) for stack in stacks}
        self._random: dict[str, Any] = {}
        self._fill(small)

    def _fill(self, small: Any) -> None:
        parameters = dict(small.named_parameters(remove_duplicate=False))
        state = small.state_dict(keep_vars=True)
        own = dict(self.model.named_parameters(remove_duplicate=False))
        for name in dict.fromkeys([*own, *self.model.state_dict(keep_vars=True)]):
            owner, _, last = name.rpartition(".")
            module = self.model.get_submodule(owner)
            held = module._parameters if name in own else module._buffers
            if held.get(last) is not None:
                held[last] = self._tensor(name, held[last], parameters if name in own else state)

    def _tensor(self, name: str, there: Any, given: Mapping[str, Any]) -> Any:
        """What the small model has in place of a tensor of the full one.

        Parameters of layers that are not kept share its memory, but have gradients of their own, which are not kept.
        """
        import torch

        found = self._of_the_small(self._counterpart(name), there, given)
        if self._counterpart(name) == name or not isinstance(found, torch.nn.Parameter):
            return found
        alias = torch.nn.Parameter(found.detach(), found.requires_grad)
        if alias.requires_grad:
            alias.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
        return alias

    def _of_the_small(self, name: str, there: Any, given: Mapping[str, Any]) -> Any:
        import torch

        small = next((given[new] for new in all_renumbered(name, self._kept) if new in given), None)
        if small is None:
            if not there.is_meta:
                return there
            if name not in self._random:
                values = torch.randn(there.shape, dtype=torch.float32) * _RANDOM_STD
                self._random[name] = torch.nn.Parameter(values.to(there.dtype), there.is_floating_point())
            return self._random[name]
        if small.shape == there.shape:
            return small
        whole = small.detach()
        for dim, entries, count in self._cuts.get(name, ()):
            shape = [count if d == dim else size for d, size in enumerate(whole.shape)]
            wider = torch.zeros(shape, dtype=whole.dtype)
            whole = wider.index_copy_(dim, torch.tensor(entries), whole)
        if whole.shape != there.shape:
            raise LookupError(f"{name} has another shape in the small model")
        return torch.nn.Parameter(whole, small.requires_grad) if isinstance(small, torch.nn.Parameter) else whole

    def _counterpart(self, name: str) -> str:
        """The name with each layer that is not kept replaced by the one whose weights it gets."""
        for path, instead in self._stand_ins.items():
            if name.startswith(f"{path}."):
                number, dot, rest = name[len(path) + 1 :].partition(".")
                name = f"{path}.{instead.get(int(number), number)}{dot}{rest}"
        return name

    def counterparts(self, names: Iterable[str]) -> set[str]:
        """What the small model calls these parameters of kept layers, and of what is in no layer."""
        return {new for name in names for new in all_renumbered(name, self._kept)}

    @contextmanager
    def with_identities(self, forms: Mapping[str, Mapping[str, LayerForm]]) -> Iterator[Any]:
        """The model, whose layers that are not kept return what they are given.

        forms: of the layers by stack and class, as the small model's calls show them.
        """
        replaced, handles = [], []
        for stack in self.stacks:
            for number in set(range(stack.layers)) - set(stack.kept):
                layer = self.model.get_submodule(f"{stack.path}.{number}")
                known = forms.get(stack.path, {})
                layer.forward = _identity(known.get(type(layer).__name__) or next(iter(known.values()), None))
                replaced.append(layer)
                parts = [part for part in layer.modules() if part is not layer]
                handles += [part.register_forward_pre_hook(_refuse_a_part) for part in parts]
        try:
            yield self.model
        finally:
            for layer in replaced:
                del layer.forward
            for handle in handles:
                handle.remove()


def _stand_ins(stack: KeptStack) -> Iterator[tuple[int, int]]:
    for kind in stack.kinds:
        first = next((layer for layer in kind if layer in stack.kept), kind[0])
        yield from ((layer, first) for layer in kind if layer not in stack.kept)


def _identity(form: LayerForm | None) -> Any:
    def forward(*args: Any, **kwargs: Any) -> Any:
        if form is None:
            raise NotAnIdentityError("a layer that is not kept is called, and no kept one of its stack is")
        return form.pass_on((args, kwargs))

    return forward


def _refuse_a_part(_part: Any, _args: Any) -> None:
    raise NotAnIdentityError("parts of a layer are called without the layer")


def broken_identity(calls: Sequence[LayerCall], stack: KeptStack) -> str:
    """Why the layers that are not kept were no identities to the model: empty if each passed its input on to the next.

    If only the last layers are not kept, no call follows them; then what holds for the other layers is taken for them.
    """
    pairs = [(a, b) for a, b in itertools.pairwise(calls) if b.layer == a.layer + 1]
    of_identities = [(a, b) for a, b in pairs if a.layer not in stack.kept]
    for before, after in of_identities or pairs:
        if not _is_passed_on(before.result, after.given):
            return f"the model changes the result of {stack.path}.{before.layer} before the next layer"
    return ""


def _is_passed_on(result: Any, given: Any) -> bool:
    import torch

    same = (result.shape, result.dtype) == (given.shape, given.dtype)
    return result is given or (same and bool(torch.equal(result.nan_to_num(), given.nan_to_num())))
