"""Remember what operators give of tensors that hold nothing: the layers of a model ask the same again and again.

What torch computes for it on the meta device are sizes and strides, in Python, which is most of the time of a pass.
"""

from __future__ import annotations

from typing import Any, Protocol

#: what was asked -> what tensors it gives; None where each call must be made
_GIVEN: dict[Any, tuple[bool, list[Any]] | None] = {}
#: operator -> whether all that it gives is new
_NEW: dict[Any, bool] = {}
#: types of values that are no tensors and hold none
PLAIN = (type(None), bool, int, float)


class _Unlike(Exception):
    """What is asked can be no key."""


class Maker(Protocol):
    """Makes the tensors of one kind, all of which hold nothing."""

    #: their classes, the one that operators give first
    kinds: tuple[type, ...]

    def __call__(self, shape: Any, stride: Any, dtype: Any) -> Any: ...


def repeated(function: Any, args: Any, kwargs: dict[str, Any], make: Maker) -> Any:
    """`function(*args, **kwargs)`, whose tensors are all of the maker's kinds. Raises what it raises."""
    try:
        key = _key(function, args, kwargs, make) if _gives_new(function) else None
        found = _GIVEN.get(key)
    except (_Unlike, TypeError):
        key = found = None
    if found is None:
        result = function(*args, **kwargs)
        if key is not None and key not in _GIVEN:
            _GIVEN[key] = _described(result, (args, kwargs), make)
        return result
    one, parts = found
    made = [part[0] if len(part) == 1 else make(*part) for part in parts]
    return made[0] if one else tuple(made)


def _key(function: Any, args: Any, kwargs: dict[str, Any], make: Maker) -> Any:
    return make.kinds, function, _asked(args, make.kinds), _asked(kwargs.items(), make.kinds)


class OnMeta:
    """torch's own tensors on the meta device."""

    def __init__(self) -> None:
        import torch

        self._empty = torch.empty_strided
        self.kinds: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)

    def __call__(self, shape: Any, stride: Any, dtype: Any) -> Any:
        return self._empty(shape, stride, dtype=dtype, device="meta")


class Fakes:
    """Fake tensors of a FakeTensorMode that claim to be on the CPU."""

    def __init__(self, mode: Any) -> None:
        import torch
        from torch._subclasses import FakeTensor

        self._mode, self._cpu, self._undispatched = mode, torch.device("cpu"), torch._C._DisableTorchDispatch
        self._fake, self._empty = FakeTensor, torch.empty_strided
        self.kinds: tuple[type, ...] = (FakeTensor,)

    def __call__(self, shape: Any, stride: Any, dtype: Any) -> Any:
        with self._undispatched():
            empty = self._empty(shape, stride, dtype=dtype, device="meta")
        return self._fake(self._mode, empty, self._cpu)


def _gives_new(function: Any) -> bool:
    found = _NEW.get(function)
    if found is None:
        import torch

        schema = function._schema
        found = not schema.is_mutable and torch.Tag.dynamic_output_shape not in function.tags
        found = found and bool(schema.returns) and all(one.alias_info is None for one in schema.returns)
        _NEW[function] = found
    return found


def _asked(values: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """What the result's form depends on. Raises _Unlike for tensors of other kinds."""
    import torch

    found: list[Any] = []
    for value in values:
        if type(value) in kinds:
            if value.layout is not torch.strided or value.dtype.is_complex:
                raise _Unlike
            found.append((value.dtype, value.shape, value.stride()))
        elif isinstance(value, torch.Tensor):
            raise _Unlike
        elif isinstance(value, list | tuple):
            found.append(_asked(value, kinds))
        else:
            found.append((type(value), value))
    return tuple(found)


def _described(result: Any, given: Any, make: Maker) -> tuple[bool, list[Any]] | None:
    """Whether it is one thing or several, and each; None for what cannot be made from its size and strides alone."""
    import torch
    from torch.utils._pytree import tree_leaves

    before = {t.untyped_storage()._cdata for t in tree_leaves(given) if isinstance(t, torch.Tensor)}
    parts: list[Any] = []
    kind: Any = make.kinds[0]
    for value in result if isinstance(result, tuple) else (result,):
        if type(value) in PLAIN:
            parts.append((value,))
            continue
        if type(value) is not kind or value.dtype.is_complex or value.storage_offset():
            return None
        like = make(value.shape, value.stride(), value.dtype)
        storage = value.untyped_storage()
        if like.device != value.device or storage._cdata in before:
            return None
        if like.untyped_storage().nbytes() != storage.nbytes():
            return None
        parts.append((value.shape, value.stride(), value.dtype))
    return not isinstance(result, tuple), parts
