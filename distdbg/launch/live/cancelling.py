"""Request the end of a run, through its control file."""

from __future__ import annotations

import getpass
import os
import socket

from distdbg.errors import Refused
from distdbg.protocol.requests import Cancel
from distdbg.rundir import RunDir


def ask_to_end(run: RunDir) -> None:
    """Raises Refused."""
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
