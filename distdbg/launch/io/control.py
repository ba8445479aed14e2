"""Read new requests from a run's control file. Whoever may write the run directory appends to it."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

from distdbg.collect.runs.run_tail import FileTail

_LOOK_EVERY_S = 0.5


class ControlWatcher:
    """Reads in a thread of its own, because a dead file system may never answer.

    `wake` is a descriptor that becomes readable when `requests` has something to give.
    """

    def __init__(self, path: Path) -> None:
        self.wake, self._notify = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._tail = FileTail(path)
        self._found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="control", daemon=True).start()

    def requests(self) -> list[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 4096)
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._found.get_nowait())
        return found

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            with contextlib.suppress(OSError):
                self._look()

    def _look(self) -> None:
        for request in self._tail.objects():
            self._found.put(request)
            os.write(self._notify, b"!")
