"""Read what a backward begins from and what it leaves: the last nodes of a graph, and whether a gradient was cleared.

No saved tensor is read: that could run the script's own hooks, or recompute a checkpointed part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from distdbg.worker.models import weak_or_gone

_MOST_NODES = 6
#: torch's loss functions, each of which says itself how it reduces.
LOSSES = ("MseLoss", "NllLoss", "NllLoss2D", "SmoothL1Loss", "HuberLoss", "KlDiv", "BinaryCrossEntropy")


class _Token:
    __slots__ = ("__weakref__",)


def token_on(node: Any, key: str) -> Callable[[], Any]:
    """A weak reference that shows when the node is freed: its object is in the node's `metadata`, and nowhere else."""
    from _weakref import ref

    token = node.metadata[key] = _Token()
    return ref(token)


def chain_of(root: Any) -> Iterator[Any]:
    """The nodes from the root backward, while each has one predecessor: operations on the loss, and the loss."""
    node = getattr(root, "grad_fn", None)
    for _ in range(_MOST_NODES):
        if node is None:
            return
        yield node
        before = [one for one, _ in node.next_functions if one is not None]
        node = before[0] if len(before) == 1 else None


def is_scaled_by_hand(root: Any) -> bool:
    """Whether the loss was multiplied afterwards, or may have been, in an autograd function of the script."""
    for node in chain_of(root):
        kind = kind_of(node)
        if kind == "Mul" or hasattr(node, "_forward_cls"):
            return True
        if kind in (*LOSSES, "Mean", "Sum"):
            return False
    return False


def kind_of(node: Any) -> str:
    """`MulBackward0` is `Mul`."""
    return type(node).__name__.partition("Backward")[0]


def dtype_of(node: Any) -> str:
    """The dtype of the node's output, `float16`; empty where this torch does not show it."""
    metadata = getattr(node, "_input_metadata", None)
    return str(metadata[0].dtype).removeprefix("torch.") if metadata else ""


def begins_with_ones(frame: FrameType) -> bool:
    """Whether a backward begins without a gradient of the script."""
    if frame.f_code.co_name == "grad":
        return False
    given = frame.f_locals.get("grad_tensors")
    return all(one is None for one in given) if isinstance(given, (list, tuple)) else given is None


_LOOKED_AT = 32
#: Lines of a script that divides or multiplies gradients.
CHANGES_GRADIENTS = re.compile(
    r"\bgrad\w*\b[^=\n]*(/=|\*=|\.div_|\.mul_)|_foreach_(div|mul)_|\.grad\s*=[^=\n]*[/*]|multiply_grads|get_scale\("
)


class Probe:
    """The gradient of one parameter after a step: was it cleared since, by hand or by any zero_grad?

    A cleared gradient is None, or its version has changed, or (through `.data`, which changes no version) it is zero.
    Zeros are read on the CPU only; elsewhere the answer is unknown once there is more than one backward. `kept`: every
    backward since added to it."""

    __slots__ = ("_gradient", "_parameter", "backwards", "kept", "version")

    def __init__(self, parameter: Any) -> None:
        self._parameter, self._gradient = weak_or_gone(parameter), weak_or_gone(parameter.grad)
        self.version = parameter.grad._version
        self.backwards, self.kept = 0, True

    def gradient(self) -> Any:
        """The gradient, where it is still the same object; else None."""
        gradient = getattr(self._parameter(), "grad", None)
        return gradient if gradient is not None and self._gradient() is gradient else None

    def backward_begins(self) -> None:
        if not self.kept:
            return
        gradient = self.gradient()
        if gradient is None or (not self.backwards and gradient._version != self.version):
            self.kept = False
        else:
            filled = is_filled(gradient)
            self.kept = not self.backwards if filled is None else filled
        self.backwards += 1

    def is_of(self, model: Any) -> bool:
        parameter = self._parameter()
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
