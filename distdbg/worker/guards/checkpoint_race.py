"""Which file each rank writes a checkpoint to, and when: whether two of them write the same one is judged outside."""

from __future__ import annotations

import os
import time

from distdbg.worker.guards._base import Guard, users_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CheckpointRace(Guard):
    id = "checkpoint-race"
    costs = "about 50 us for each torch.save to a file"
    blind = (
        "what is not written by torch.save to a path (safetensors, numpy, open files); ranks of different nodes, "
        "whose file systems may or may not be shared"
    )

    def begin(self) -> None:
        self._began: dict[str, float] = {}
        self.listen("save", self._save)
        self.listen("save-end", self._saved)

    def _save(self, path: Any) -> None:  # noqa: ANN401
        if isinstance(path, str) and self.desk.distributed() is not None:
            self._began[path] = time.time()

    def _saved(self, path: Any) -> None:  # noqa: ANN401
        began = self._began.pop(path, None) if isinstance(path, str) else None
        if began is None:
            return
        file = os.stat(path)
        if (file.st_mode & 0o170000) != 0o100000:
            return  # /dev/null, a pipe
        real = os.path.realpath(path)
        where = users_line()
        line = f"{where[0]}:{where[1]}" if where else ""
        self.say(where, "", self._tries(line), path=real, inode=[file.st_dev, file.st_ino], began=began,
                 ended=time.time(), bytes=file.st_size)  # fmt: skip

    def _tries(self, line: str) -> int:
        """A few saves of each line: the first may be another rank's turn, or come from another step."""
        tries = sum(1 for key in self._told if len(key) == 3 and f"{key[0]}:{key[1]}" == line)
        return min(tries, 2)
