"""State that the parts of an agent share: its node, its events, its folder on this node.

The folder has the socket, the FIFOs and the heartbeat pages. It is never on a file system that can freeze.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from distdbg.launch.io.disk import DiskWriter
from distdbg.launch.link.wire import Wire
from distdbg.protocol.message import Event
from distdbg.protocol.page import PAGE_BYTES
from distdbg.rundir import NodeFiles, RunDir
from distdbg.whole_file import why_not_trusted
from distdbg.worker.calls import CALLS_BYTES
from distdbg.worker.mapping import open_zeros

#: What a rank keeps there from its start to its end.
RANK_BYTES = PAGE_BYTES + CALLS_BYTES
_YOUNG_S = 60.0
_LONGEST = 60  # a Unix socket's path ends at 107 bytes; ours adds up to 30


@dataclass
class Node:
    """`attempt` is the current one; its number chooses the files. `launcher` is None where no launcher is connected."""

    run: RunDir
    node_rank: int
    host: str
    folder: Path
    attempt: int
    disk: DiskWriter
    launcher: Wire | None = field(default=None)

    @property
    def files(self) -> NodeFiles:
        return self.run.attempt(self.attempt).node(self.node_rank, self.host)

    def event(self, message: Event) -> None:
        """Write an event to the node's events.jsonl and send it to the launcher, if one is connected."""
        record = message.record(time.time())
        self.disk.append(self.files.events, json.dumps(record, default=str).encode() + b"\n")
        if self.launcher is not None:
            self.launcher.send(record)


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
            # By writing: what a file system says of itself leaves out quotas, and is 0 where it has no bound.
            os.close(open_zeros(str(made[-1] / "room"), room))
            (made[-1] / "room").unlink()
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


def sweep(parent: Path) -> None:
    """Remove folders whose agent was killed."""
    with contextlib.suppress(OSError):
        for folder in parent.glob("distdbg-*-*"):
            if _is_left_over(folder):
                remove_node_dir(folder)


def _is_left_over(folder: Path) -> bool:
    """Whether the agent's socket refuses. Young folders are left alone, they may be starting."""
    with contextlib.suppress(OSError):  # gone, or another's: a longer name than a socket's path may have
        status = folder.lstat()
        if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                return sock.connect_ex(str(folder / "agent.sock")) == errno.ECONNREFUSED
    return False


def remove_node_dir(folder: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
