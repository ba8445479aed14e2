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

    from distdbg.worker.guards._base import Guard

    #: (where it lies, the name it is to have, the file that has that name now: its status, or None)
    Publish = Callable[[str, str, "os.stat_result | None"], None]

#: Stands in the name that a file has until it is whole.
PART = ".distdbg-"
#: Room that must be left beside the file before, as a part of its size; else it is overwritten in place.
_ROOM = 1.1


class Asides:
    """Of one rank: which files are being written under another name. `publish` gives one its own: the guards set it."""

    def __init__(self, guard: Guard) -> None:
        self._guard, self._process = guard, os.getpid()
        self._numbers = itertools.count()
        self._targets: dict[str, str] = {}
        self.publish: list[Publish] = []
        self._stand_in()

    def target(self, path: str) -> str:
        """The name that the script gave, for the one that torch writes to."""
        return self._targets.get(path, path)

    def _stand_in(self) -> None:
        """Raises AttributeError where this torch writes in another way."""
        module: Any = sys.modules["torch.serialization"]
        plain, asides = module._open_zipfile_writer_file, self

        class Aside(plain):  # type: ignore[misc, valid-type]
            def __init__(self, name: str) -> None:
                self._distdbg_part = part = asides._begin(name)
                try:
                    super().__init__(part or name)
                except BaseException:
                    asides._drop(part)
                    raise

            def __exit__(self, kind: object, *rest: object) -> None:
                try:
                    super().__exit__(kind, *rest)
                except BaseException:
                    asides._drop(self._distdbg_part)
                    raise
                if kind is None:
                    asides._end(self._distdbg_part)
                else:
                    asides._drop(self._distdbg_part)

        module._open_zipfile_writer_file = Aside

        def end() -> None:
            if module._open_zipfile_writer_file is Aside:
                module._open_zipfile_writer_file = plain

        self.end = end

    def _begin(self, name: str) -> str | None:
        """The other name; None where the file is better written as it would be without us. Never raises."""
        try:
            target = os.path.realpath(name)
            folder, base = os.path.split(target)
            stem = base.rpartition(".")[0] or base
            if os.getpid() != self._process or stem.startswith(".") or not _can_be_replaced(target, folder):
                return None
            part = os.path.join(folder, f"{stem}{PART}{self._guard.desk.rank:05d}-{next(self._numbers)}")
            self._targets[part] = target
        except Exception:
            return None
        return part

    def _end(self, part: str | None) -> None:
        target = self._targets.pop(part or "", None)
        if part is None or target is None:
            return
        try:
            before = _status(target)
            if before is not None:
                os.chmod(part, before.st_mode & 0o7777)
            for publish in self.publish:
                publish(part, target, before)
            if os.path.exists(part):
                os.replace(part, target)
        except Exception as error:
            self.end()
            self._guard.desk.tell("guard-failed", guard=self._guard.id, error=repr(error))
            if os.path.exists(part):  # what fails now would have failed without us, too
                shutil.copyfile(part, target)
                os.unlink(part)

    def _drop(self, part: str | None) -> None:
        """torch raised: what was there before stays."""
        if part is not None:
            self._targets.pop(part, None)
            try:
                os.unlink(part)
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
