"""The control file of a run: users with write permission append requests, agents and launchers read them."""

from __future__ import annotations

import contextlib
import getpass
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distdbg.collect.runs.run_tail import FileTail
from distdbg.errors import Refused
from distdbg.protocol.requests import Cancel
from distdbg.rundir import RunDir

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
                for request in self._tail.objects():
                    self._found.put(request)
                    os.write(self._notify, b"!")


@contextlib.contextmanager
def refuse_unwritable_run() -> Iterator[None]:
    """Raise Refused if the block cannot write into the run directory."""
    try:
        yield
    except OSError as error:
        raise Refused(
            f"the run directory cannot be written: {error.strerror}: {error.filename}",
            "Ask as the user who launched it, or free some space.",
        ) from None


def ask_to_end(run: RunDir) -> None:
    """Request the end of a run. Raises Refused."""
    try:
        run.ask(Cancel(by=f"cancelled by {who()} (pid {os.getpid()})").record())
    except OSError as error:
        raise Refused(
            f"{str(run.control)!r} cannot be written: {error.strerror}", "Cancel it as the user who launched it."
        ) from None


def who() -> str:
    """user@host"""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
