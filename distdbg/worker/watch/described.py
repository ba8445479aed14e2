"""Describe the inputs or outputs of a module in a few words: shapes and dtypes, within tuples, lists and dicts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
_MOST, _DEEPEST, _LONGEST = 8, 4, 240


def describe(value: object) -> str:
    """`float32[8, 4]`, `(float32[8, 4], None)`, `CausalLMOutput{logits: bfloat16[2, 16, 1000]}`."""
    text = _words(value, _DEEPEST)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def signature(value: object, deepest: int = _DEEPEST) -> tuple[object, ...]:
    """Only the shapes and dtypes of a value, for comparison."""
    return tuple((tensor.shape, tensor.dtype) for tensor in _tensors(value, deepest))


def _words(value: object, deepest: int) -> str:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, (int, float, bool)) or value is None:
        return repr(value)
    inner = deepest - 1
    if deepest and isinstance(value, dict):
        kind = "" if type(value) is dict else type(value).__name__
        pairs = [f"{key}: {_words(one, inner)}" for key, one in list(value.items())[:_MOST]]
        return f"{kind}{{{_joined(pairs, len(value))}}}"
    if deepest and isinstance(value, (list, tuple)):
        kind = "" if type(value) in (list, tuple) else type(value).__name__
        words = _joined([_words(one, inner) for one in value[:_MOST]], len(value))
        return f"{kind}[{words}]" if isinstance(value, list) else f"{kind}({words})"
    return type(value).__name__


def _tensor(tensor: Any) -> str:
    text = f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(str(size) for size in tensor.shape)}]"
    part = getattr(tensor, "_local_tensor", None)
    return text if part is None else f"{text} (here [{', '.join(str(size) for size in part.shape)}])"


def _joined(words: list[str], count: int) -> str:
    return ", ".join(words) + (f", … {count - len(words)} more" if count > len(words) else "")


def _tensors(value: object, deepest: int) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif deepest and isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, deepest - 1)
