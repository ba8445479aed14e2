"""An agent's half of knowing that the launcher is there: it pings, and where it does not, its host is asked.

A launcher that is stopped or slow says nothing either, and its job goes on: only a host that does not open a door
which it opened at the start has been cut off, or is dead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from distdbg.launch.io.loop import Loop
from distdbg.launch.link.liveness_port import knock

#: The launcher's pings, and how long without one is silence.
PING_EVERY_S = 4.0
SILENT_AFTER_S = 12.0
_LOOK_EVERY_S = 2.0

Knock = Callable[[Sequence[tuple[str, int]]], bool]


def any_opens(doors: Sequence[tuple[str, int]]) -> bool:
    return any(why is None for why in knock(doors).values())


class Lifeline:
    """`cut` is called once, from the loop, with the seconds of silence."""

    def __init__(self, loop: Loop, doors: Sequence[tuple[str, int]], cut: Callable[[float], None]) -> None:
        self._loop = loop
        self._doors = doors
        self._cut = cut
        self._heard = time.monotonic()
        self._closed_at: float | None = None
        self._asking: threading.Thread | None = None
        loop.after(_LOOK_EVERY_S, self._look)

    def ping(self) -> None:
        self._heard = time.monotonic()

    def _look(self) -> None:
        silent = time.monotonic() - self._heard
        if self._closed_at is not None and self._closed_at > self._heard:
            self._cut(silent)
            return
        if silent > SILENT_AFTER_S and self._doors and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, name="lifeline", daemon=True)
            self._asking.start()
        self._loop.after(_LOOK_EVERY_S, self._look)

    def _ask(self) -> None:
        if not any_opens(self._doors):
            self._closed_at = time.monotonic()
