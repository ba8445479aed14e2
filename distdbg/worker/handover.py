"""Files of a rank that its agent moves into the run directory: written in node-local memory, then told."""

from __future__ import annotations

import os

from distdbg.whole_file import write_through, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from distdbg.worker.context import RankContext

#: So much stays free, or a quarter of it all where that is less: the loaders' batches mostly lie there, too.
_RESERVE = 256 << 20


class Handover:
    """`op` is the message that tells of them. No two files have one name there, also if they have in the end."""

    def __init__(self, context: RankContext, op: str) -> None:
        self._context, self._op = context, op
        self._count = 0
        self._written: list[dict[str, str]] = []

    @property
    def folder(self) -> str:
        return os.path.dirname(self._context.stem)

    def write(self, name: str, data: bytes) -> None:
        """Raises OSError; then there is no such file."""
        self.write_through(name, lambda path: write_whole(path, data))

    def write_through(self, name: str, write: Callable[[str], object]) -> None:
        """`write` gets the path to write to. Raises what it raises; then there is no such file."""
        self._count += 1
        path = f"{self._context.stem}.{self._op}-{self._count:03d}"
        write_through(path, write)
        self._written.append({"file": os.path.basename(path), "name": name})

    def tell(self) -> None:
        """The agent takes all that was written since the last time."""
        written, self._written = self._written, []
        self._context.link.send(self._op, {"files": written}, last_words=True)


def no_room(folder: str, size: int, writers: int | None = None) -> str:
    """Why so many bytes should not be written there; empty where they may. All ranks of the node write at the same
    time, if `writers` does not say how many do."""
    wanted = size * (writers or int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    left = to_spare(folder)
    if wanted <= left:
        return ""
    return f"{folder} has {max(left, 0) >> 20} MiB left to spare, and this node's ranks may need {-(-wanted >> 20)} MiB"


def to_spare(folder: str) -> int:
    """Bytes beyond what stays free for others. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize - min(found.f_blocks * found.f_frsize // 4, _RESERVE)
