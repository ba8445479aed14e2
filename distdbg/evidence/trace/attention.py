"""Judge whether a fused kernel could have computed a call of scaled_dot_product_attention that took the math path.

By the arguments that record_shapes keeps. Source of the requirements: torch's sdp_utils_cpp.cpp (flash on CPU: no
dropout) and sdp_utils.cpp (flash: half precision, no mask; memory-efficient: float, too, and a mask).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FLOATS = {"float", "c10::Half", "c10::BFloat16"}
_HALVES = {"c10::Half", "c10::BFloat16"}
_LARGEST_HEAD = 256


def fused(args: Mapping[str, Any] | None, *, device: bool) -> str | None:
    """`flash` or `memory-efficient`; "" where none would take it, None where that is not known."""
    if not args:
        return None
    types, dims = args.get("Input type"), args.get("Input Dims")
    strides, concrete = args.get("Input Strides"), args.get("Concrete Inputs")
    if not all(isinstance(part, list) and len(part) >= 6 for part in (types, dims, strides, concrete)):
        return None
    try:
        return _judge(types, dims, strides, concrete, device)  # type: ignore[arg-type]
    except (TypeError, ValueError, IndexError):
        return None


def _judge(types: list[str], dims: list[list[int]], strides: list[list[int]], concrete: list[str], device: bool) -> str:
    query, key, value = dims[:3]
    alike = len(query) == len(key) == len(value) == 4 and query[3] == key[3] == value[3] <= _LARGEST_HEAD
    heads = query[:2] == key[:2] == value[:2] and min(query[2], key[2]) > 0
    straight = all(s and s[-1] == 1 for s in strides[:3])
    if not (alike and heads and straight and len(set(types[:3])) == 1 and types[0] in _FLOATS):
        return ""
    masked = types[3] != ""
    if not device:
        return "flash" if float(concrete[4] or 0) == 0 else ""
    if types[0] in _HALVES and not masked:
        return "flash"
    return "memory-efficient"
