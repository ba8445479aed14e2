"""Run single layers of both models on the same inputs: those that the small model gave its layers.

A layer of the full model gets the input of the kept layer that stands for it, and does the same if it is of its kind.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from distdbg.plain_text import first_words
from distdbg.shrink.probe.building import in_short
from distdbg.shrink.verify.kept import PASS, KeptStack, each_layer, has_passed
from distdbg.shrink.verify.measuring import Measured, measure

LAYER_CHECKS = ("ops", "activation_bytes", "gradients", "each_layer")
#: check -> what `Measured` calls it, and people
_COMPARED = {
    "ops": ("ops", "operators"),
    "activation_bytes": ("saved", "bytes kept for backward"),
    "gradients": ("gradients", "parameters that get a gradient"),
}


class RecordedCalls:
    """Inputs of the kept layers, by path, of their first call."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[Any, Any]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._given

    def record(self, model: Any, part: Any, inputs: Mapping[str, Any], paths: Sequence[str]) -> None:
        """Run `part` of the model, and remember what the layers at these paths get, also if it raises."""
        import torch

        def see(path: str) -> Any:
            def hook(_layer: Any, args: Any, kwargs: Any) -> None:
                if path not in self._given:
                    self._given[path] = _copy((args, kwargs))

            return hook

        handles = [model.get_submodule(path).register_forward_pre_hook(see(path), with_kwargs=True) for path in paths]
        try:
            torch.manual_seed(0)
            with suppress(Exception), torch.enable_grad(), _without_cache(model):
                part.eval()(**inputs)
        finally:
            for handle in handles:
                handle.remove()

    def replay(self, path: str, layer: Any, number: int) -> Measured:
        """What `layer`, which has this number in its model, does with the input of the kept layer at `path`.

        Some layers are given their own number (Zamba 2): where the kept one's is refused, it gets its own. Raises what
        the layer raises.
        """
        try:
            return _replay(layer, path, *self._given[path])
        except Exception:
            args, kwargs = self._given[path]
            own = int(path.rpartition(".")[2])
            numbered = [number if type(value) is int and value == own else value for value in args]
            return _replay(layer, path, numbered, kwargs)


def _replay(layer: Any, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Measured:
    import torch

    args, kwargs = _copy((args, kwargs))
    torch.manual_seed(0)
    return measure(layer.eval(), {path: layer}, *args, **kwargs)[path]


@contextmanager
def _without_cache(model: Any) -> Iterator[None]:
    """A cache knows how many layers there are: without one, a layer of another model can take the same inputs."""
    configs = [config for module in model.modules() if (config := getattr(module, "config", None)) is not None]
    caching = {id(config): config for config in configs if getattr(config, "use_cache", False)}
    for config in caching.values():
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching.values():
            config.use_cache = True


def _copy(given: Any) -> Any:
    """Copy all that a layer is given, caches included; tensors without what they were computed from."""
    import torch

    def copy_tensor(tensor: Any, _memo: Any) -> Any:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    with patch.object(torch.Tensor, "__deepcopy__", copy_tensor):
        return copy.deepcopy(given)


def compare_layers(full: Any, small: Any, stacks: Sequence[KeptStack], calls: RecordedCalls) -> dict[str, str]:
    """Check -> `pass`, `fail: …`, `warning: …` or `not run, because …`."""
    verdicts: dict[str, dict[str, str]] = {check: {} for check in LAYER_CHECKS}
    for stack in stacks:
        missing = [new for new in range(len(stack.kept)) if f"{stack.path}.{new}" not in calls]
        if missing:
            found = dict.fromkeys(LAYER_CHECKS, f"not run, because no input reaches its layer {missing[0]}")
        else:
            found = _of_a_stack(full, small, stack, calls)
        for check, said in found.items():
            verdicts[check][stack.path] = said
    return {check: _summary(of_stacks) for check, of_stacks in verdicts.items()}


def _of_a_stack(full: Any, small: Any, stack: KeptStack, calls: RecordedCalls) -> dict[str, str]:
    there: dict[str, Measured] = {}
    here: dict[str, Measured] = {}
    try:
        for new, old in enumerate(stack.kept):
            path = f"{stack.path}.{new}"
            here[path] = calls.replay(path, small.get_submodule(path), new)
            there[f"{stack.path}.{old}"] = calls.replay(path, full.get_submodule(f"{stack.path}.{old}"), old)
    except Exception as error:
        return dict.fromkeys(LAYER_CHECKS, f"not run, because a layer by itself raises {in_short(error)}")
    found = {check: _equal(stack, there, here, check) for check in _COMPARED}
    return found | {"each_layer": _each_layer(full, stack, calls, there)}


def _equal(stack: KeptStack, there: Mapping[str, Measured], here: Mapping[str, Measured], check: str) -> str:
    field, what = _COMPARED[check]
    for new, old in enumerate(stack.kept):
        a, b = getattr(there[f"{stack.path}.{old}"], field), getattr(here[f"{stack.path}.{new}"], field)
        if a != b:
            return (
                f"fail: {what} of {stack.path}.{new} are not those of {stack.path}.{old} in the full model "
                f"({_difference(a, b)})"
            )
    return PASS


def _difference(there: Any, here: Any) -> str:
    if isinstance(there, Counter):
        return first_words("; ".join([*list((there - here).elements())[:1], *list((here - there).elements())[:1]]), 160)
    return f"{there} there, {here} here"


def _each_layer(full: Any, stack: KeptStack, calls: RecordedCalls, kept: Mapping[str, Measured]) -> str:
    """Whether each layer that is not kept does what a kept one of its kind does."""
    measured = dict(kept)
    try:
        for layer, of_its_kind in stack.spoken_for():
            path = f"{stack.path}.{layer}"
            given = f"{stack.path}.{list(stack.kept).index(of_its_kind[-1])}"
            measured[path] = calls.replay(given, full.get_submodule(path), layer)
    except Exception as error:
        return f"not run, because layer {layer} by itself raises {in_short(error)}"
    return each_layer(
        stack,
        {what: {path: getattr(one, field) for path, one in measured.items()} for field, what in _COMPARED.values()},
    )


def _summary(of_stacks: Mapping[str, str]) -> str:
    """The worst that a check has to say of any stack."""
    said = [f"{path}: {verdict}" for path, verdict in of_stacks.items() if not has_passed(verdict)]
    for worst in ("fail", "warning"):
        if found := [verdict for verdict in said if f": {worst}: " in verdict]:
            return f"{worst}: {found[0].replace(f': {worst}: ', ': ', 1)}"
    if said:
        return f"not run, because {'; '.join(verdict.replace('not run, because ', '', 1) for verdict in said)}"
    besides = [verdict.removeprefix(f"{PASS}; ") for verdict in of_stacks.values() if verdict != PASS]
    return "; ".join([PASS, *besides])
