"""Remove our hooks while torch.save writes, and put them back afterwards."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from distdbg.worker.context import RankContext


class Saves:
    """Calls `off` before a save and `on` once all is written. Where the end sends no event (the save raised, or
    another thread saves while this one trains) `on` is called at the next backward."""

    def __init__(self, context: RankContext, off: Callable[[], None], on: Callable[[], None]) -> None:
        self._bus, self._off, self._on = context.bus, off, on
        self._depth, self._thread = 0, _thread.get_ident()
        self._unsubscribe = self._bus.subscribe_all(("save", self._begins), ("save-end", self._ends))

    def end(self) -> None:
        self._unsubscribe()
        self._bus.unsubscribe("backward", self._back)

    def back_later(self) -> None:
        """For code that removed the hooks itself: put them back at the next backward."""
        self._bus.unsubscribe("backward", self._back)
        self._bus.subscribe("backward", self._back)

    def _begins(self, _path: object) -> None:
        """Saving an object may save another one."""
        self._depth += 1
        self._off()
        self.back_later()

    def _ends(self, path: object) -> None:
        """In another thread hooks are left alone: the model may be in its forward."""
        self._depth = max(0, self._depth - 1)
        if not self._depth and _thread.get_ident() == self._thread:
            self._back(path)

    def _back(self, _subject: object) -> None:
        self._depth = 0
        self._bus.unsubscribe("backward", self._back)
        self._on()
