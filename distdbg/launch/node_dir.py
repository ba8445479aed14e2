"""The node-local folder of a run: socket, FIFOs, heartbeat pages. Never on a file system that can freeze."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

_YOUNG_S = 60.0
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
        sweep(Path(parent))
        try:
            return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        except OSError as failed:
            error = failed
    raise error or OSError("no folder for sockets is short enough")


def sweep(parent: Path) -> None:
    """Remove folders whose agent was killed: its socket refuses. Young ones are left alone, they may be starting."""
    with contextlib.suppress(OSError):
        for folder in parent.glob("distdbg-*-*"):
            status = folder.stat()
            mine = status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S
            if mine and _refuses(folder / "agent.sock"):
                remove_node_dir(folder)


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def remove_node_dir(folder: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
