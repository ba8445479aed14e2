"""One number of a GPU, read when it has come to the host by itself: the training never waits for it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]


class LateFigures:
    """A vector of figures, and whatever is about it; read at once where it is not on a GPU."""

    def __init__(self) -> None:
        self._host: Any = None
        self._event: Any = None
        self._about: Any = None

    def send(self, figures: Any, about: object) -> bool:  # noqa: ANN401
        """False where one is still on its way."""
        if self._about is not None:
            return False
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
        """None where none has come."""
        if self._about is None or (self._event is not None and not self._event.query()):
            return None
        about, self._about = self._about, None
        return self._host.tolist(), about


class Late:
    """The pinned memory of one number, and the event after which it is there."""

    def __init__(self) -> None:
        self._host: Any = None
        self._event: Any = None
        self._on_the_way = False

    def swap(self, tensor: Any) -> float:  # noqa: ANN401
        """The number that was sent before, 0.0 where none has come; send the sum of this tensor."""
        if tensor.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return 0.0
        if self._host is None:
            self._host = torch.zeros((), dtype=torch.float32, pin_memory=True)
            self._event = torch.cuda.Event()
        if self._on_the_way and not self._event.query():
            return 0.0
        value = float(self._host) if self._on_the_way else 0.0
        self._host.copy_(tensor.detach().float().sum(), non_blocking=True)
        self._event.record()
        self._on_the_way = True
        return value
