"""Detect that the only checkpoint is overwritten in place: a job that is killed meanwhile has none.

A file that is written under a temporary name and renamed has another inode each time, since the old one still exists.
Nothing is reported where another file of about its size is beside it, or one that this rank wrote elsewhere and has not
changed since, or where the script copies files.
"""

from __future__ import annotations

import os
import re
from typing import Any

from distdbg.worker.guards.shared.atomic_saves import PART, Save
from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.user_code import mentioned, users_line

_MOST_FILES = 64
_MOST_LOOKED_AT = 1000
#: What lies beside checkpoints and is none, however large.
_NO_CHECKPOINTS = (".py", ".log", ".txt", ".out", ".err", ".json", ".jsonl", ".yaml", ".csv")
#: What keeps a copy elsewhere.
_COPIES = re.compile(
    r"shutil\.|copyfile|copy2|\bcp\b|\blink\(|upload|rsync|gsutil|aws s3|put_object|put_file", re.IGNORECASE
)


class CheckpointNotAtomic(Guard):
    id = "checkpoint-not-atomic"
    modes = ("off", "warn", "fix")
    costs = "about 20 us for each torch.save to a file; the second to one name lists its folder"
    blind = "what is not written by torch.save to a path; copies that another program makes"

    def begin(self) -> None:
        self._written: dict[str, tuple[int, int, int]] = {}
        self._again: set[str] = set()
        if self.mode == "fix":
            self.context.atomic_saves(self.id).publish.append(self._publish)
            return  # nothing is overwritten in place
        self.listen("save", self._begins)
        self.listen("save-end", self._ends)

    def _publish(self, save: Save, before: os.stat_result | None) -> None:
        """The file is about to be renamed: report a name that is used again, as without `fix`."""
        target = save.target
        if target in self._written and before is not None and not self._has_other(target, before.st_size):
            self.report(users_line(), path=target, bytes=before.st_size, fixed=True)
        self._remember(target, (0, 0, 0))

    def _begins(self, path: Any) -> None:
        """torch has opened it by now, and cut it to nothing."""
        before = self._written.get(path) if isinstance(path, str) else None
        if before is None:
            return
        file = os.stat(path)
        size = before[2]
        if (file.st_dev, file.st_ino) == before[:2] and not self._has_other(path, size):
            self.report(users_line(), path=os.path.realpath(path), bytes=size)

    def _ends(self, path: Any) -> None:
        if not isinstance(path, str):
            return
        if self.context.saves is not None and self.context.saves.writing(path):
            return  # another guard has it written elsewhere, and renamed
        file = os.stat(path)
        if (file.st_mode & 0o170000) == 0o100000:
            self._remember(path, (file.st_dev, file.st_ino, file.st_size))

    def _remember(self, path: str, file: tuple[int, int, int]) -> None:
        """The newest last."""
        if self._written.pop(path, None) is not None:
            self._again.add(path)
        elif len(self._written) >= _MOST_FILES:
            self._again.discard(oldest := next(iter(self._written)))
            del self._written[oldest]
        self._written[path] = file

    def _has_other(self, path: str, size: int) -> bool:
        own = os.stat(path).st_ino
        once = (other for other in self._written if other != path and other not in self._again)
        return _is_beside(path, size) or any(_is_there(one, size, own) for one in once) or mentioned(_COPIES)


def _is_there(path: str, size: int, own: int) -> bool:
    """Whether another file of at least half the size still has this name. A link is none."""
    try:
        file = os.stat(path)
    except OSError:
        return False
    return file.st_ino != own and 2 * file.st_size >= size


def _is_beside(path: str, size: int) -> bool:
    """Whether its folder holds another file of at least half the size, or too many to look at. A link to it is none."""
    own = os.stat(path).st_ino
    with os.scandir(os.path.dirname(path) or ".") as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_LOOKED_AT:
                return True
            other = PART not in entry.name and not entry.name.endswith(_NO_CHECKPOINTS)
            if other and entry.is_file() and entry.stat().st_ino != own and 2 * entry.stat().st_size >= size:
                return True
    return False
