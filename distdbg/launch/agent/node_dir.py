"""The node-local folder of a run: socket, FIFOs, heartbeat pages. Never on a file system that can freeze."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from distdbg.protocol.page import PAGE_BYTES
from distdbg.whole_file import why_not_trusted
from distdbg.worker.calls import CALLS_BYTES
from distdbg.worker.page import mapped

#: What a rank keeps there from its start to its end.
RANK_BYTES = PAGE_BYTES + CALLS_BYTES
_YOUNG_S = 60.0
_LONGEST = 60  # a Unix socket's path ends at 107 bytes; ours adds up to 30


def make_node_dir(run_id: str, node_rank: int, room: int) -> tuple[Path, dict[str, str]]:
    """A fresh 0700 folder in $XDG_RUNTIME_DIR, /dev/shm or the temporary directory, whichever first has `room` bytes;
    and of those before it, why not.

    Where none has, the first that can be made: the ranks do without what does not fit. Raises OSError where none can.
    """
    prefix = f"distdbg-{run_id[-4:]}-{node_rank}-"
    refused: dict[str, str] = {}
    made: list[Path] = []
    # A folder where others may rename ours is the last resort: a job must not fail for it.
    for parent in sorted(_parents(), key=lambda parent: why_not_trusted(parent) != ""):
        if parent in refused or len(parent) + len(prefix) + 8 > _LONGEST:
            continue
        sweep(Path(parent))
        try:
            made.append(Path(tempfile.mkdtemp(prefix=prefix, dir=parent)))
            _try_room(made[-1] / "room", room)
        except OSError as error:
            refused[parent] = str(error.strerror)
        else:
            break
    else:
        made.reverse()
    if not made:
        raise OSError(f"no folder for sockets: {refused or 'none is short enough'}")
    for folder in made[:-1]:
        remove_node_dir(folder)
    return made[-1], refused


def _parents() -> Iterator[str]:
    if given := os.environ.get("XDG_RUNTIME_DIR"):
        yield given
    yield "/dev/shm"
    with contextlib.suppress(FileNotFoundError):  # it writes, to try, and finds none where all are full
        yield tempfile.gettempdir()
    yield "/tmp"


def _try_room(path: Path, size: int) -> None:
    """By writing: what a file system says of itself leaves out quotas, and is 0 where it has no bound."""
    mapped(str(path), size).close()
    path.unlink()


def sweep(parent: Path) -> None:
    """Remove folders whose agent was killed: its socket refuses. Young ones are left alone, they may be starting."""
    with contextlib.suppress(OSError):
        for folder in parent.glob("distdbg-*-*"):
            status = folder.lstat()
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
