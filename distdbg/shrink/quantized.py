"""A quantized checkpoint's config names modules, layers among them: the names follow the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.shrink.layer_names import renumbered


def renumbered_names(value: Any, kept: Mapping[str, Sequence[int]]) -> Any:
    """`value` (of `quantization_config`) with every module name in it as its kept layer is called now.

    Names of layers that are not kept leave lists, and leave objects whose keys they are (settings a module). `kept`:
    prefix -> layers. A pattern (`re:…`) is left as it is: it goes on matching, at most more than it need.
    """
    if isinstance(value, str):
        new = _name(value, kept)
        return value if new is None else new
    if isinstance(value, list):
        return [renumbered_names(v, kept) for v in value if not (isinstance(v, str) and _name(v, kept) is None)]
    if isinstance(value, Mapping):
        pairs = ((_name(k, kept), v) for k, v in value.items())
        return {name: renumbered_names(v, kept) for name, v in pairs if name is not None}
    return value


def _name(text: str, kept: Mapping[str, Sequence[int]]) -> str | None:
    return text if text.startswith("re:") or "*" in text else renumbered(text, kept)
