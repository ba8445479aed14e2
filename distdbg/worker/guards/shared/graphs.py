"""Read the names and dtypes of the last nodes of a graph, where a loss was computed.

No saved tensor is read: that could run the script's own hooks, or recompute a checkpointed part.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

_MOST_NODES = 6
#: torch's loss functions, each of which says itself how it reduces.
LOSSES = ("MseLoss", "NllLoss", "NllLoss2D", "SmoothL1Loss", "HuberLoss", "KlDiv", "BinaryCrossEntropy")


class Token:
    """It is in the `metadata` of a graph's node and is freed with it: weak references show when."""

    __slots__ = ("__weakref__",)


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
