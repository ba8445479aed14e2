"""Write the launcher's events: events.jsonl at the top of the run directory."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from distdbg.launch.io.disk import DiskWriter
from distdbg.protocol.launcher_events import AttemptBegun
from distdbg.protocol.message import Event
from distdbg.rundir import RunDir
from distdbg.whole_file import open_own


class Journal:
    """Appends through the disk thread, so that a frozen file system never holds the launcher up."""

    def __init__(self, run: RunDir, disk: DiskWriter) -> None:
        self._path = run.events
        self._disk = disk
        self._attempt = 0

    @property
    def refusal(self) -> tuple[str, str] | None:
        """The first file of the launcher that the file system does not take now, and why."""
        refusal = self._disk.refusal
        return (str(refusal[0]), refusal[1]) if refusal is not None else None

    def begin_attempt(self, number: int) -> None:
        """Mark the events that follow as those of this attempt, if it is newer than the last one."""
        if number > self._attempt:
            self._attempt = number
            self.note(AttemptBegun(attempt=number))

    def write_whole(self, path: Path, data: bytes) -> None:
        """Write another file of the launcher; a reader never sees half of it."""
        self._disk.write_whole(path, data)

    def note(self, message: Event) -> None:
        self._disk.append(self._path, _line(message))


def _line(message: Event) -> bytes:
    return json.dumps(message.record(time.time()), default=str).encode("utf-8", "backslashreplace") + b"\n"


def note(run: RunDir, message: Event) -> None:
    """Write one event of a process that is not the launcher; a directory that cannot be written is left alone."""
    with contextlib.suppress(OSError):
        descriptor = open_own(run.events, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, _line(message))
        finally:
            os.close(descriptor)
