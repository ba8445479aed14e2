"""Detect, in an agent, that the launcher's host cannot be reached any more.

The launcher sends pings. A stopped or slow launcher sends none, and its job goes on. Only a host whose port could be
reached at the start and cannot be reached now is cut off, or dead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from distdbg.launch.io.loop import Loop
from distdbg.launch.link.liveness_port import connect_all

#: The launcher's pings, and how long without one is silence.
PING_EVERY_S = 4.0
SILENT_AFTER_S = 12.0
_LOOK_EVERY_S = 2.0

ConnectAll = Callable[[Sequence[tuple[str, int]]], bool]


def any_answers(endpoints: Sequence[tuple[str, int]]) -> bool:
    return any(why is None for why in connect_all(endpoints).values())


class Lifeline:
    """`cut` is called once, from the loop, with the seconds of silence."""

    def __init__(self, loop: Loop, endpoints: Sequence[tuple[str, int]], cut: Callable[[float], None]) -> None:
        self._loop = loop
        self._endpoints = endpoints
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
        if silent > SILENT_AFTER_S and self._endpoints and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, name="lifeline", daemon=True)
            self._asking.start()
        self._loop.after(_LOOK_EVERY_S, self._look)

    def _ask(self) -> None:
        if not any_answers(self._endpoints):
            self._closed_at = time.monotonic()
