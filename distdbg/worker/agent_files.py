"""Write files in node-local memory that the agent moves into the run directory."""

from __future__ import annotations

import os
from collections.abc import Callable

from distdbg.whole_file import write_through, write_whole
from distdbg.worker.context import RankContext

#: Bytes that stay free, or a quarter of the file system where that is less: loaders often keep their batches there.
_RESERVE = 256 << 20


class AgentFiles:
    """`op` is the message that names them to the agent. Their names in node-local memory are unique."""

    def __init__(self, context: RankContext, op: str) -> None:
        self._context, self._op = context, op
        self._count = 0
        self._written: list[dict[str, str]] = []
        self.folder = os.path.dirname(context.stem)

    def write(self, name: str, data: bytes) -> None:
        """Raises OSError; then there is no such file."""
        self.write_through(name, lambda path: write_whole(path, data))

    def write_through(self, name: str, write: Callable[[str], object]) -> None:
        """`write` gets the path to write to. Raises what it raises; then there is no such file."""
        self._count += 1
        path = f"{self._context.stem}.{self._op}-{self._count:03d}"
        write_through(path, write)
        self._written.append({"file": os.path.basename(path), "name": name})

    def send(self) -> None:
        """Name to the agent all files that were written since the last time."""
        written, self._written = self._written, []
        self._context.link.send(self._op, {"files": written}, last_words=True)


def no_room(folder: str, size: int, writers: int | None = None) -> str:
    """Why so many bytes must not be written there; empty where they may. Without `writers`, all ranks of the node are
    expected to write at the same time."""
    wanted = size * (writers or int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    left = free_bytes(folder)
    if wanted <= left:
        return ""
    return f"{folder} has {max(left, 0) >> 20} MiB left to spare, and this node's ranks may need {-(-wanted >> 20)} MiB"


def free_bytes(folder: str) -> int:
    """Bytes that may be written, without those that stay free. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize - min(found.f_blocks * found.f_frsize // 4, _RESERVE)
