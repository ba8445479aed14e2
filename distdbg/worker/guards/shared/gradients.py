"""Detect whether the gradient of one parameter was cleared since the last look.

By hand or by any zero_grad: a cleared gradient is None, or its version has changed, or (through `.data`, which changes
no version) it is zero. Zeros are read on the CPU only; elsewhere the answer is unknown once there is more than one
backward.
"""

from __future__ import annotations

import re
from typing import Any

from distdbg.worker.models import weak

_LOOKED_AT = 32
#: Lines of a script that divides or multiplies gradients.
CHANGES_GRADIENTS = re.compile(
    r"\bgrad\w*\b[^=\n]*(/=|\*=|\.div_|\.mul_)|_foreach_(div|mul)_|\.grad\s*=[^=\n]*[/*]|multiply_grads|get_scale\("
)


class Probe:
    """For a tensor that has a gradient now."""

    __slots__ = ("_gradient", "_parameter", "version")

    def __init__(self, parameter: Any) -> None:
        self._parameter, self._gradient = weak(parameter), weak(parameter.grad)
        self.version = parameter.grad._version

    def gradient(self) -> Any:
        """The gradient, where it is still the same object; else None."""
        parameter = self._parameter() if self._parameter is not None else None
        gradient = None if parameter is None else parameter.grad
        same = gradient is not None and self._gradient is not None and self._gradient() is gradient
        return gradient if same else None

    def is_of(self, model: Any) -> bool:
        parameter = self._parameter() if self._parameter is not None else None
        return any(one is parameter for one in model.parameters())


def probe_of(parameters: Any) -> Probe | None:
    """For the first parameter whose gradient is not known to be zero."""
    for parameter in parameters:
        if parameter.grad is not None and is_filled(parameter.grad) is not False:
            return Probe(parameter)
    return None


def dense_one(parameters: Any) -> Any:
    """A parameter whose gradient is dense, as that of a bias or a norm and not of an embedding. Or None."""
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    return next((parameter for parameter in wanted if parameter.dim() == 1), wanted[0] if wanted else None)


def is_filled(gradient: Any) -> bool | None:
    """Whether its first row has a value other than zero; None where it would be read from a device."""
    if gradient.device.type != "cpu" or gradient.is_sparse or type(gradient).__name__ == "DTensor":
        return None
    part = gradient.detach()
    while part.dim() > 1:
        part = part[0]
    return any(part[:_LOOKED_AT].tolist()) if part.dim() else bool(part)
