"""Read figures from a GPU without waiting for it: copied to the host in the background, read once they have arrived."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any

from distdbg.worker.models import local_part

_LOOK_AGAIN_S = 0.002
#: Seconds at the end of a script in which figures may still arrive: the device may be in a collective that never ends.
_WAIT_AT_THE_END_S = 0.2


def can_be_read_later(tensor: Any) -> bool:
    """Whether the tensor is on a CPU or a GPU, and its values can be copied now: not while a CUDA graph is captured."""
    kind = tensor.device.type
    return kind == "cpu" or (kind == "cuda" and not sys.modules["torch"].cuda.is_current_stream_capturing())


class LateFigures:
    """One vector at a time, with an object that describes it; read at once where it is not on a GPU."""

    def __init__(self) -> None:
        self._host: Any = None
        self._event: Any = None
        self._about: Any = None

    @property
    def on_its_way(self) -> bool:
        """Whether a vector has been sent, and not taken yet."""
        return self._about is not None

    def send(self, figures: Any, about: object) -> bool:
        """False where the vector before has not arrived."""
        if self._about is not None:
            return False
        torch = sys.modules["torch"]
        if figures.device.type != "cuda":
            self._host = figures
        else:
            if self._event is None:
                self._event = torch.cuda.Event()
            if self._host is None or self._host.shape != figures.shape or self._host.dtype != figures.dtype:
                self._host = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True)
            self._host.copy_(figures, non_blocking=True)
            self._event.record()
        self._about = about
        return True

    def take(self, *, last: bool = False) -> tuple[list[float], Any] | None:
        """Return the vector and its description; None if none has arrived. With `last`, wait for it a little."""
        until = monotonic() + _WAIT_AT_THE_END_S if last else 0.0
        while last and self._event is not None and not self._event.query() and monotonic() < until:
            sleep(_LOOK_AGAIN_S)
        if self._about is None or (self._event is not None and not self._event.query()):
            return None
        about, self._about = self._about, None
        return self._host.tolist(), about


class LateNorms(LateFigures):
    """The norms of one list of parameters at a time. It has no effect on the training."""

    def measure(self, parameters: Sequence[Any], about: object) -> None:
        """Send the norms, of a DTensor that of this rank's part, unless those before have not arrived.

        About 1 ms for 5 million numbers on a CPU.
        """
        torch = sys.modules["torch"]
        parts = [local_part(parameter) for parameter in parameters]
        if len({part.device for part in parts}) != 1 or not can_be_read_later(parts[0]):
            return
        wide = any(part.dtype == torch.float64 for part in parts)
        with torch.no_grad():
            norms = torch._foreach_norm(parts, 2, dtype=torch.float64 if wide else torch.float32)
            self.send(torch.stack(norms), about)


class LateNumber:
    """One number of a GPU at a time."""

    def __init__(self) -> None:
        self._figures = LateFigures()

    def swap(self, tensor: Any) -> float:
        """Send the sum of this tensor; return the number that was sent before, 0.0 where it has not arrived."""
        if tensor.device.type != "cuda" or not can_be_read_later(tensor):
            return 0.0
        arrived = self._figures.take()
        self._figures.send(tensor.detach().float().sum().reshape(1), True)
        return 0.0 if arrived is None else arrived[0][0]
