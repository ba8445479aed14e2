"""Test tensors for values that are not finite. No gradient, no random number."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from distdbg.worker.models import local_part

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
_PROBED = 1 << 16


def tensors_in(value: object, most: int = 8) -> list[Any]:
    """The floating tensors of a module's input or output: a tensor, or lists, tuples and dicts of them."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    found: list[Any] = []
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value[:64]
    for one in inner:
        if len(found) >= most:
            break
        found += tensors_in(one, most - len(found))
    return found


def probe(tensor: Any) -> Any:
    """A part of a gradient, for a quick test."""
    return local_part(tensor).reshape(-1)[:_PROBED]


def is_finite(tensor: Any) -> bool:
    """Waits for a tensor's device."""
    return bool(torch.isfinite(local_part(tensor)).all())


def is_mask(tensor: Any) -> bool:
    """-inf is all that is not finite in it, as in a mask of attention."""
    values = local_part(tensor)
    return not bool((torch.isnan(values) | torch.isposinf(values)).any())


def has_same_bad_rows(batch: Any, output: Any) -> bool:
    """Whether the values that are not finite are in the same samples, along the first dimension of both tensors.

    False if there is no output or if the dimensions are not comparable.
    """
    rows = [local_part(one) for one in (batch, output) if one is not None and one.dim()]
    if len(rows) < 2 or rows[0].shape[0] != rows[1].shape[0]:
        return False
    first, second = ((~torch.isfinite(one)).reshape(one.shape[0], -1).any(1) for one in rows)
    return bool((first.cpu() == second.cpu()).all())


def statistics(tensor: Any) -> dict[str, object]:
    """Shape, dtype, how many NaN, inf and -inf, and minimum, maximum, mean of the finite values."""
    values = local_part(tensor)
    finite = values[torch.isfinite(values)].double()
    found: dict[str, object] = {
        "shape": list(values.shape), "dtype": str(values.dtype).removeprefix("torch."), "count": values.numel(),
        "nan": int(torch.isnan(values).sum()), "inf": int(torch.isposinf(values).sum()),
        "neginf": int(torch.isneginf(values).sum()), "zeros": int((values == 0).sum()),
    }  # fmt: skip
    if finite.numel():
        found |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())}
    return found
