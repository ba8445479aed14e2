"""In which dtype a model computes under torch.autocast."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def autocast_of(module: Any) -> str:  # noqa: ANN401
    """`float16` or `bfloat16` where autocast is on for the device of a module that trains, else empty.

    Only where its parameters have another dtype: autocast does nothing for a model that is of half precision itself.
    """
    if not module.training:
        return ""
    torch = sys.modules["torch"]
    if not torch.is_grad_enabled():
        return ""
    parameter = next((p for p in module.parameters() if p.requires_grad), None)
    if parameter is None or not torch.is_autocast_enabled(parameter.device.type):
        return ""
    dtype = torch.get_autocast_dtype(parameter.device.type)
    return "" if parameter.dtype == dtype else str(dtype).removeprefix("torch.")
