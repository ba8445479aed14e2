"""The node-local folder of a run: socket, FIFOs, heartbeat pages. Never on a file system that can freeze."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_LONGEST = 60  # a Unix socket's path ends at 107 bytes; ours adds up to 30


def make_node_dir(run_id: str, node_rank: int) -> Path:
    """A fresh 0700 folder in $XDG_RUNTIME_DIR, /dev/shm or the temporary directory, whichever serves first.

    Raises OSError where none does.
    """
    prefix = f"distdbg-{run_id[-4:]}-{node_rank}-"
    error: OSError | None = None
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", tempfile.gettempdir(), "/tmp"):
        if not parent or len(parent) + len(prefix) + 8 > _LONGEST:
            continue
        try:
            return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        except OSError as failed:
            error = failed
    raise error or OSError("no folder for sockets is short enough")


def remove_node_dir(folder: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
