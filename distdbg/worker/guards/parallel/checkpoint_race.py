"""Report the file and time of each checkpoint of this rank; the rule detects ranks that write the same one.

In the mode `fix` the lowest rank that saves to a name at a step keeps the name, in any order. Each rank notes its saves
in the node-local folder, under a lock that is held for a rename.
"""

from __future__ import annotations

import os
import time
from typing import Any

from distdbg.worker.guards.shared.atomic_saves import Save
from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.user_code import users_line


class CheckpointRace(Guard):
    id = "checkpoint-race"
    modes = ("off", "warn", "fix")
    costs = "about 50 us for each torch.save to a file"
    blind = (
        "open files, and what other libraries write than torch, safetensors and numpy; ranks of different nodes, whose "
        "file systems may or may not be shared; `fix` repairs what torch.save writes to a path"
    )

    def begin(self) -> None:
        self._began: dict[str, float] = {}
        self.listen("save", self._save)
        self.listen("save-end", self._saved)
        self.listen("write", self._writes)
        if self.mode == "fix":
            self.context.atomic_saves(self.id).publish.append(self._publish)

    def _save(self, path: Any) -> None:
        if isinstance(path, str) and self.context.distributed():
            self._began[path] = time.time()

    def _saved(self, path: Any) -> None:
        saved = self.context.saves.writing(path) if self.context.saves is not None and isinstance(path, str) else None
        if not isinstance(path, str) or path not in self._began or (saved is not None and self.mode == "fix"):
            return  # `_publish` reports it
        began = self._began.pop(path)
        file = os.stat(path if saved is None else saved.part)
        if (file.st_mode & 0o170000) != 0o100000:
            return  # /dev/null, a pipe
        real = os.path.realpath(path)
        own = file if saved is None else os.stat(os.path.dirname(real))
        self._report_save(real, (own.st_dev, own.st_ino), began, file.st_size)

    def _writes(self, path: Any) -> None:
        """The file may not exist yet, nor its folder: only the device is known."""
        if not isinstance(path, (str, os.PathLike)) or not self.context.distributed():
            return
        real = folder = os.path.realpath(path)
        if os.path.exists(real) and not (os.path.isfile(real) or os.path.isdir(real)):
            return  # /dev/null, a pipe
        while not os.path.isdir(folder := os.path.dirname(folder)):
            pass
        self._report_save(real, (os.stat(folder).st_dev, 0), time.time(), None)

    def _report_save(self, real: str, inode: tuple[int, int], began: float, size: int | None, **more: object) -> None:
        """`size` is None where the end sends no event."""
        where = users_line()
        # a few saves of each line: the first may be another rank's turn, or of another step
        self.report(where, "", min(self.reports_at(where), 2), path=real, inode=list(inode), began=began,
                 ended=None if size is None else time.time(), bytes=size, **more)  # fmt: skip

    def _publish(self, save: Save, _before: object) -> None:
        """Rename a complete file: to its own name, or to one with the rank in it."""
        began = self._began.pop(save.name, None)
        if began is None:
            return
        kept = _Claims(save.target, self.context).publish(save.part)
        folder = os.stat(os.path.dirname(save.target))
        self._report_save(
            save.target, (folder.st_dev, folder.st_ino), began, os.stat(kept).st_size, kept=os.path.basename(kept)
        )


class _Claims:
    """The saves of a node's ranks under one name at the newest step: a line each, `rank step device inode`."""

    def __init__(self, target: str, context: Any) -> None:
        from hashlib import sha256

        name = f"{os.environ.get('DISTDBG_ATTEMPT', '1')}-{sha256(os.fsencode(target)).hexdigest()[:24]}"
        self._file = os.path.join(os.environ["DISTDBG_NODE_DIR"], f"save-{name}")
        self._target, self._rank, self._step = target, context.rank, context.steps

    def publish(self, part: str) -> str:
        """Returns the new path."""
        import fcntl

        with open(self._file, "a+", encoding="ascii") as claims:
            fcntl.flock(claims, fcntl.LOCK_EX)
            claims.seek(0)
            rows = [tuple(map(int, line.split())) for line in claims]
            now = [row for row in rows if row[1] == self._step and row[0] != self._rank]
            kept = self._target
            if now and min(now)[0] < self._rank:
                kept = f"{self._target}.rank{self._rank:05d}"
            elif now:
                self._make_room(min(now))
            os.replace(part, kept)
            file = os.stat(kept)
            claims.seek(0)
            claims.truncate()
            for row in (*now, (self._rank, self._step, file.st_dev, file.st_ino)):
                claims.write(" ".join(map(str, row)) + "\n")
        return kept

    def _make_room(self, holder: tuple[int, ...]) -> None:
        """A higher rank has the name: its file gets the name that it would have got later."""
        file = os.stat(self._target)
        if (file.st_dev, file.st_ino) == holder[2:]:
            os.replace(self._target, f"{self._target}.rank{holder[0]:05d}")
