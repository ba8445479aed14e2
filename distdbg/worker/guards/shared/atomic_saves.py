"""Write torch.save's files under a temporary name and rename them once they are complete, for two guards with `fix`.

torch writes through a class of its own; a subclass replaces it in a rank where `fix` is on. The archive is the same
to the byte: torch takes the name of the folder in it from the file's name without its last suffix.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable
from stat import S_ISREG
from typing import Any

#: Part of the name that a file has until it is complete.
PART = ".distdbg-"
#: Free space that must be left beside the old file, as a multiple of its size; else it is overwritten in place.
_FREE_SPACE = 1.1


class Save:
    """One file: the `name` that the script gave, its real path (`target`), and its temporary path (`part`)."""

    def __init__(self, name: str, target: str, part: str) -> None:
        self.name, self.target, self.part = name, target, part


#: Renames a complete file; gets the status of the file that has the name now, or None.
Publish = Callable[[Save, "os.stat_result | None"], None]


class AtomicSaves:
    """The files of one rank that have a temporary name. Guards add a function to `publish` to rename a file themselves.

    `failed` is called with the error after which torch.save is left alone.
    """

    def __init__(self, rank: int, failed: Callable[[Exception], object]) -> None:
        self._rank, self._failed, self._process = rank, failed, os.getpid()
        self._numbers = itertools.count()
        self._saves: dict[str, Save] = {}
        self.publish: list[Publish] = []
        self._replace_writer()

    def writing(self, name: str) -> Save | None:
        """The file that is being written for this name; None where it is written in place."""
        return self._saves.get(name)

    def _replace_writer(self) -> None:
        """Raises AttributeError where this torch writes in another way."""
        module: Any = sys.modules["torch.serialization"]
        plain, saves = module._open_zipfile_writer_file, self

        class TemporaryFileWriter(plain):  # type: ignore[misc, valid-type]
            def __init__(self, name: str) -> None:
                self._distdbg_save = save = saves._begin(name)
                try:
                    super().__init__(name if save is None else save.part)
                except BaseException:
                    saves._drop(save)
                    raise
                self.name = name  # the one that all other code knows

            def __exit__(self, kind: object, *rest: object) -> None:
                try:
                    super().__exit__(kind, *rest)
                except BaseException:
                    saves._drop(self._distdbg_save)
                    raise
                if kind is None:
                    saves._end(self._distdbg_save)
                else:
                    saves._drop(self._distdbg_save)

        module._open_zipfile_writer_file = TemporaryFileWriter

        def end() -> None:
            if module._open_zipfile_writer_file is TemporaryFileWriter:
                module._open_zipfile_writer_file = plain

        self.end = end

    def _begin(self, name: str) -> Save | None:
        """None where the file is written in place. Never raises."""
        try:
            target = os.path.realpath(name)
            folder, base = os.path.dirname(target), os.path.basename(name)
            stem = base.rpartition(".")[0] or base
            if os.getpid() != self._process or stem.startswith(".") or not _can_be_replaced(target, folder):
                return None
            part = os.path.join(folder, f"{stem}{PART}{self._rank:05d}-{next(self._numbers)}")
            self._saves[name] = save = Save(name, target, part)
        except Exception:
            return None
        return save

    def _end(self, save: Save | None) -> None:
        if save is None:
            return
        try:
            before = _status(save.target)
            if before is not None:
                os.chmod(save.part, before.st_mode & 0o7777)
            for publish in self.publish:
                publish(save, before)
            if os.path.exists(save.part):
                os.replace(save.part, save.target)
        except Exception as error:
            self.end()
            self._failed(error)
            if os.path.exists(save.part):  # what fails now would have failed without us, too
                shutil.copyfile(save.part, save.target)
                os.unlink(save.part)
        self._saves.pop(save.name, None)

    def _drop(self, save: Save | None) -> None:
        """torch raised: the file of before stays."""
        if save is not None:
            self._saves.pop(save.name, None)
            try:
                os.unlink(save.part)
            except OSError:
                return


def _can_be_replaced(target: str, folder: str) -> bool:
    """A regular file of this user, or none yet, in a writable folder with space for both."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    file = _status(target)
    if file is None:
        return True
    if not S_ISREG(file.st_mode) or file.st_uid != os.geteuid() or not os.access(target, os.W_OK):
        return False
    return shutil.disk_usage(folder).free >= _FREE_SPACE * file.st_size


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
