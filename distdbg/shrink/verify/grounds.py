"""What stands for tensors that are not there: tensors on the meta device, or torch's fake tensors.

Fake ones say that they are on a CPU, which FSDP2 insists on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol


class Ground(Protocol):
    """The kind of tensor that holds nothing."""

    #: where it says it is
    device: str

    def is_empty(self, tensor: Any) -> bool: ...

    def emptied(self, tensor: Any) -> Any:
        """Its counterpart that holds nothing."""

    def leaves_alone(self, tensors: list[Any], asked: str | None) -> bool:
        """Is what is made of these tensors, all of known content, a real one? `asked`: the device it shall be on."""

    def really(self) -> AbstractContextManager[Any]:
        """In it, functions give real tensors."""


class Meta:
    device = "meta"

    def is_empty(self, tensor: Any) -> bool:
        return bool(tensor.is_meta)

    def emptied(self, tensor: Any) -> Any:
        return tensor.to("meta")

    def leaves_alone(self, tensors: list[Any], asked: str | None) -> bool:
        return asked == "cpu" or not (asked or any(t.is_meta for t in tensors))

    def really(self) -> AbstractContextManager[Any]:
        return nullcontext()


class Fake:
    """While `mode`, a FakeTensorMode, is on."""

    device = "cpu"

    def __init__(self, mode: Any) -> None:
        from torch._subclasses import FakeTensor

        self._mode, self._kind = mode, FakeTensor

    def is_empty(self, tensor: Any) -> bool:
        return isinstance(tensor, self._kind)

    def emptied(self, tensor: Any) -> Any:
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass

        held = self.is_empty(tensor) or is_traceable_wrapper_subclass(tensor)
        return tensor if held else self._mode.from_tensor(tensor)

    def leaves_alone(self, tensors: list[Any], asked: str | None) -> bool:  # noqa: ARG002 -- all are on the CPU
        return bool(tensors) and not any(self.is_empty(t) for t in tensors)

    def really(self) -> AbstractContextManager[Any]:
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        real: AbstractContextManager[Any] = unset_fake_temporarily()
        return real
