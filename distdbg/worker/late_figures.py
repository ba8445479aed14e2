"""Read figures from a GPU without waiting for it: copied to the host in the background, read once they have arrived."""

from __future__ import annotations

import sys
from time import monotonic, sleep
from typing import Any

_LOOK_AGAIN_S = 0.002


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

    def take(self) -> tuple[list[float], Any] | None:
        """None where none has arrived."""
        if self._about is None or (self._event is not None and not self._event.query()):
            return None
        about, self._about = self._about, None
        return self._host.tolist(), about

    def wait(self, seconds: float) -> tuple[list[float], Any] | None:
        """As `take`, a little later: at the end of a script, whose device may never finish."""
        until = monotonic() + seconds
        while (arrived := self.take()) is None and self._about is not None and monotonic() < until:
            sleep(_LOOK_AGAIN_S)
        return arrived


class LateNumber:
    """One number of a GPU at a time."""

    def __init__(self) -> None:
        self._figures = LateFigures()

    def swap(self, tensor: Any) -> float:
        """Send the sum of this tensor; return the number that was sent before, 0.0 where it has not arrived."""
        if tensor.device.type != "cuda" or sys.modules["torch"].cuda.is_current_stream_capturing():
            return 0.0
        arrived = self._figures.take()
        self._figures.send(tensor.detach().float().sum().reshape(1), True)
        return 0.0 if arrived is None else arrived[0][0]
