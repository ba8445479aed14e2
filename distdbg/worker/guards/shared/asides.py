"""torch.save under another name, and the file's own name for it once it is whole: what two guards mend with.

torch writes through a class of its own; a subclass stands in its place, in a rank that was asked to mend. What lies in
the archive is the same to the byte: torch takes a folder's name in it from the file's name without its last suffix.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.guards.shared.base import Guard

    #: gives a file its name; gets the status of the file that has it now, or None
    Publish = Callable[["Save", "os.stat_result | None"], None]

#: Stands in the name that a file has until it is whole.
PART = ".distdbg-"
#: Room that must be left beside the file before, as a part of its size; else it is overwritten in place.
_ROOM = 1.1


class Save:
    """One file: the `name` that the script gave, where that really lies (`target`), where it is written (`part`)."""

    def __init__(self, name: str, target: str, part: str) -> None:
        self.name, self.target, self.part = name, target, part


class Asides:
    """Of one rank: which files are being written under another name. `publish` gives one its own: the guards set it."""

    def __init__(self, guard: Guard) -> None:
        self._guard, self._process = guard, os.getpid()
        self._numbers = itertools.count()
        self._saves: dict[str, Save] = {}
        self.publish: list[Publish] = []
        self._stand_in()

    def writing(self, name: str) -> Save | None:
        """The file that is being written for this name; None where it is written in place."""
        return self._saves.get(name)

    def _stand_in(self) -> None:
        """Raises AttributeError where this torch writes in another way."""
        module: Any = sys.modules["torch.serialization"]
        plain, asides = module._open_zipfile_writer_file, self

        class Aside(plain):  # type: ignore[misc, valid-type]
            def __init__(self, name: str) -> None:
                self._distdbg_save = save = asides._begin(name)
                try:
                    super().__init__(name if save is None else save.part)
                except BaseException:
                    asides._drop(save)
                    raise
                self.name = name  # as everybody knows it

            def __exit__(self, kind: object, *rest: object) -> None:
                try:
                    super().__exit__(kind, *rest)
                except BaseException:
                    asides._drop(self._distdbg_save)
                    raise
                if kind is None:
                    asides._end(self._distdbg_save)
                else:
                    asides._drop(self._distdbg_save)

        module._open_zipfile_writer_file = Aside

        def end() -> None:
            if module._open_zipfile_writer_file is Aside:
                module._open_zipfile_writer_file = plain

        self.end = end

    def _begin(self, name: str) -> Save | None:
        """None where the file is better written as it would be without us. Never raises."""
        try:
            target = os.path.realpath(name)
            folder, base = os.path.dirname(target), os.path.basename(name)
            stem = base.rpartition(".")[0] or base
            if os.getpid() != self._process or stem.startswith(".") or not _can_be_replaced(target, folder):
                return None
            part = os.path.join(folder, f"{stem}{PART}{self._guard.desk.rank:05d}-{next(self._numbers)}")
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
            self._guard.desk.tell("guard-failed", guard=self._guard.id, error=repr(error))
            if os.path.exists(save.part):  # what fails now would have failed without us, too
                shutil.copyfile(save.part, save.target)
                os.unlink(save.part)
        self._saves.pop(save.name, None)

    def _drop(self, save: Save | None) -> None:
        """torch raised: what was there before stays."""
        if save is not None:
            self._saves.pop(save.name, None)
            try:
                os.unlink(save.part)
            except OSError:
                return


def asides_of(guard: Guard) -> Asides:
    """The rank's own, made when the first guard asks."""
    if guard.desk.asides is None:
        guard.desk.asides = Asides(guard)
    return guard.desk.asides


def _can_be_replaced(target: str, folder: str) -> bool:
    """An ordinary file of ours, or none yet, in a folder that takes another one, with room for both."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    file = _status(target)
    if file is None:
        return True
    if (file.st_mode & 0o170000) != 0o100000 or file.st_uid != os.geteuid() or not os.access(target, os.W_OK):
        return False
    return shutil.disk_usage(folder).free >= _ROOM * file.st_size


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
