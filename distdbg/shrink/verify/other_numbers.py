"""Find the numbers of a small model that are others in the full one, and try those instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distdbg.shrink.verify.kept import KeptStack


@dataclass(frozen=True)
class OtherNumber:
    """An entry of `holder` that is `other` in the full model. is_placed: the place of its layer decides it, since the
    full model's layer at that place has the same; else it follows from how many layers there are."""

    holder: Any
    name: str
    value: Any
    other: Any
    words: str
    is_placed: bool


def other_numbers(full: Any, small: Any, stacks: Sequence[KeptStack]) -> Iterator[OtherNumber]:
    """Attributes and buffers of kept layers, and fields of configs, that are not what they are in the full model.

    The layer's own number is left out, by which caches find their entries.
    """
    for stack in stacks:
        for new, old in enumerate(stack.kept):
            here = small.get_submodule(f"{stack.path}.{new}")
            there, at_place = (dict(full.get_submodule(f"{stack.path}.{i}").named_modules()) for i in (old, new))
            for path, part in here.named_modules():
                called = ".".join(filter(None, (stack.path, str(new), path)))
                counterparts = there.get(path), at_place.get(path)
                yield from _of_a_part(part, *counterparts, called, own_numbers=(new, old))
    yield from _of_configs(full, small)


def _of_a_part(
    part: Any, there: Any, at_place: Any, called: str, *, own_numbers: tuple[int, int]
) -> Iterator[OtherNumber]:
    for holder in (vars(part), part._buffers):
        for name, value in list(holder.items()):
            other, placed = getattr(there, name, value), getattr(at_place, name, None)
            if {type(value), type(other)} <= {int, float} and value != other and (value, other) != own_numbers:
                words = f"{called}.{name} is {value:g}, and {other:g} in the full model"
                yield OtherNumber(holder, name, value, other, words, placed == value)
            elif name in part._non_persistent_buffers_set and not _are_equal(value, other):
                words = f"{called}.{name} is another in the full model"
                yield OtherNumber(holder, name, value, other, words, _are_equal(value, placed))


def _of_configs(full: Any, small: Any) -> Iterator[OtherNumber]:
    there = dict(full.named_modules())
    seen: list[Any] = []
    for path, module in small.named_modules():
        config, other = (getattr(m, "config", None) for m in (module, there.get(path)))
        if config is None or other is None or any(config is known for known in seen):
            continue
        seen.append(config)
        for name, value in list(vars(config).items()):
            instead = getattr(other, name, value)
            if type(value) is int and type(instead) is int and value != instead:
                words = f"the config's {name} is {value}, and {instead} in the full model"
                yield OtherNumber(vars(config), name, value, instead, words, False)


@contextmanager
def substituted(numbers: Sequence[OtherNumber]) -> Iterator[None]:
    """While it is on, the small model has the full one's numbers."""
    for number in numbers:
        number.holder[number.name] = number.other
    try:
        yield
    finally:
        for number in numbers:
            number.holder[number.name] = number.value


def _are_equal(a: Any, b: Any) -> bool:
    import torch

    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is b
    return a.shape == b.shape and bool(torch.equal(a, b))
