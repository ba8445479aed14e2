"""The launcher's own timeline: events.jsonl at the top of the run directory."""

from __future__ import annotations

import json
import time
from typing import Any

from distdbg.launch.disk import DiskWriter
from distdbg.rundir import RunDir


class Journal:
    """Appends through the disk thread, so that a frozen file system never holds the launcher up."""

    def __init__(self, run: RunDir, disk: DiskWriter) -> None:
        self._path = run.events
        self._disk = disk

    def note(self, event: str, **fields: Any) -> None:  # noqa: ANN401
        line = json.dumps({"t": time.time(), "event": event, **fields}, default=str)
        self._disk.append(self._path, line.encode("utf-8", "backslashreplace") + b"\n")
