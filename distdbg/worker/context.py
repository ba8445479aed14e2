"""Define `RankContext`: the connection, heartbeat page and hook bus that all features of a rank share."""

from __future__ import annotations

import os

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.link import Link
from distdbg.worker.models import LastModel
from distdbg.worker.page import PageWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.hooks.hook_points import Callback


class RankContext:
    """Features get this object and import nothing of the session that starts them.

    Raises OSError or ValueError only from the constructor.
    """

    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self.rank, self.attempt = rank, attempt
        self.stem = f"{folder}/{rank:05d}"
        self.link = Link(f"{folder}/agent.sock")
        self.link.send("hello", {"rank": rank, "pid": os.getpid()})
        self.page: PageWriter = self.mapped_or_private(
            "heartbeat page", lambda path: PageWriter(path, rank, attempt), f"{self.stem}.page"
        )
        self.imports = ImportWatch(self._hook_failed)
        self.bus = Bus(self.imports, self.subscriber_failed)
        self.model = LastModel()
        self.page.subscribe(self.bus, self.model.seen)

    def fact(self, kind: str, **fields: object) -> bool:
        """Send one of this rank's facts to the agent; False where it was dropped. Never blocks, never raises."""
        return self.link.send("fact", {"kind": kind, **fields})

    def mapped_or_private(self, what: str, make: Callable[[str | None], Any], path: str) -> Any:
        """Make an object with a file that the agent reads; without the file where the node's memory is full."""
        try:
            return make(path)
        except OSError as error:
            self.fact("not-kept", what=what, error=error.strerror)
            return make(None)

    def subscriber_failed(self, event: str, subscriber: Callback, error: Exception) -> None:
        name = getattr(subscriber, "__qualname__", "?")
        self.fact("subscriber-dropped", event=event, subscriber=name, error=repr(error))

    def _hook_failed(self, module: str, error: Exception) -> None:
        self.fact("not-hooked", module=module, error=repr(error))
