"""The launcher's own timeline: events.jsonl at the top of the run directory."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from distdbg.launch.disk import DiskWriter
from distdbg.rundir import RunDir
from distdbg.whole_file import open_own


class Journal:
    """Appends through the disk thread, so that a frozen file system never holds the launcher up."""

    def __init__(self, run: RunDir, disk: DiskWriter) -> None:
        self._path = run.events
        self._disk = disk

    def note(self, event: str, **fields: Any) -> None:  # noqa: ANN401
        line = json.dumps({"t": time.time(), "event": event, **fields}, default=str)
        self._disk.append(self._path, line.encode("utf-8", "backslashreplace") + b"\n")


def note(run: RunDir, event: str, **fields: Any) -> None:  # noqa: ANN401
    """One event from somebody who is not the launcher; a directory that cannot be written is left alone."""
    line = json.dumps({"t": time.time(), "event": event, **fields}, default=str) + "\n"
    with contextlib.suppress(OSError):
        descriptor = open_own(run.events, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
