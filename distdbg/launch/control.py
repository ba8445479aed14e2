"""Watches a run's control file for requests: appended to by anyone who may write the run directory."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

_LOOK_EVERY_S = 0.5


class ControlWatcher:
    """Looks from a thread of its own, because a look at a dead file system may never return.

    `wake` is a descriptor that becomes readable when `requests` has something to give.
    """

    def __init__(self, path: Path) -> None:
        self.wake, self._notify = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._path = path
        self._offset = 0
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
        # Opened anew each time: NFS shows another host's bytes only to a fresh open.
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole, newline, _ = data.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                request = json.loads(line)
                if isinstance(request, dict):
                    self._found.put(request)
                    os.write(self._notify, b"!")
