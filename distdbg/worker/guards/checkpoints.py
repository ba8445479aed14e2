"""Detect checkpoints that other ranks, a killed job or a later load would break."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from itertools import permutations
from stat import S_ISREG
from typing import Any

from distdbg.protocol.names import CHANGES_PREFIX, MODEL_WRAPPERS
from distdbg.worker.guards.shared.atomic_saves import PART, Save
from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import is_replicated
from distdbg.worker.user_code import frames_above, mentioned, users_line

#: function that writes -> its argument with the state
_GIVEN = {("torch.serialization", "save"): "obj", ("safetensors.torch", "save_file"): "tensors"}
#: Of one wrapper, and of one inside another.
_PREFIXES = [".".join((*names, "")) for count in (1, 2) for names in permutations(MODEL_WRAPPERS, count)]
_CHANGES_PREFIX = re.compile(CHANGES_PREFIX)


class CheckpointModulePrefix(Guard):
    """Detect a checkpoint whose names all begin with the prefix of a wrapper."""

    id = "checkpoint-module-prefix"
    modes = ("off", "warn", "error")
    costs = "about 10 us for each torch.save and save_file"
    blind = (
        "what neither torch.save nor safetensors write; models with a part called `module` that is no wrapper's; "
        "scripts that name the prefix, as scripts that remove it do"
    )

    def begin(self) -> None:
        self.listen("save", self._save)
        self.listen("write", self._save)

    def _save(self, _path: object) -> None:
        for names in _saved_names():
            prefix = next((p for p in reversed(_PREFIXES) if all(name.startswith(p) for name in names)), None)
            if prefix is None:
                continue
            if prefix.startswith("module.") and not is_replicated(self.context.model()):
                continue  # the model itself has a part of that name
            if mentioned(_CHANGES_PREFIX):
                return
            self.report(
                users_line(), f"all names of the checkpoint begin with {prefix}", prefix=prefix, names=names[:3],
                count=len(names),
            )  # fmt: skip
            return


def _saved_names() -> Iterator[list[str]]:
    """The names in each state that torch.save or safetensors' save_file was given, by a frame of the stack: a state is
    a dict of tensors, and what is saved may be a dict of such dicts."""
    saved: Any = None
    for frame in frames_above(12):
        argument = _GIVEN.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
        if argument is not None:
            saved = frame.f_locals.get(argument)
            break
    for part in [saved, *list(saved.values())[:20]] if isinstance(saved, dict) else []:
        named = isinstance(part, dict) and part and all(isinstance(name, str) for name in part)
        if named and isinstance(next(iter(part.values())), sys.modules["torch"].Tensor):
            yield list(part)


_MOST_FILES = 64
_MOST_LOOKED_AT = 1000
#: What lies beside checkpoints and is none, however large.
_NO_CHECKPOINTS = (".py", ".log", ".txt", ".out", ".err", ".json", ".jsonl", ".yaml", ".csv")
#: What keeps a copy elsewhere.
_COPIES = re.compile(
    r"shutil\.|copyfile|copy2|\bcp\b|\blink\(|upload|rsync|gsutil|aws s3|put_object|put_file", re.IGNORECASE
)


class CheckpointNotAtomic(Guard):
    """Detect that the only checkpoint is overwritten in place: a job that is killed meanwhile has none.

    A file that is written under a temporary name and renamed has another inode each time, since the old one still
    exists. Nothing is reported where another file of about its size is beside it, or one that this rank wrote elsewhere
    and has not changed since, or where the script copies files."""

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
        if S_ISREG(file.st_mode):
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


class CheckpointRace(Guard):
    """Report the file and time of each checkpoint of this rank; the rule detects ranks that write the same one.

    In the mode `fix` the lowest rank that saves to a name at a step keeps the name, in any order. Each rank notes its
    saves in the node-local folder, under a lock that is held for a rename."""

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
        if not S_ISREG(file.st_mode):
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
        kept = _claim(save, self.context.rank, self.page.steps())
        folder = os.stat(os.path.dirname(save.target))
        self._report_save(
            save.target, (folder.st_dev, folder.st_ino), began, os.stat(kept).st_size, kept=os.path.basename(kept)
        )


def _claim(save: Save, rank: int, step: int) -> str:
    """Rename the file, to its own name or to one with the rank in it; returns the new path.

    A node's ranks note their saves under one name at the newest step, a line each: `rank step device inode`."""
    import fcntl
    from hashlib import sha256

    name = f"{os.environ.get('DISTDBG_ATTEMPT', '1')}-{sha256(os.fsencode(save.target)).hexdigest()[:24]}"
    with open(os.path.join(os.environ["DISTDBG_NODE_DIR"], f"save-{name}"), "a+", encoding="ascii") as claims:
        fcntl.flock(claims, fcntl.LOCK_EX)
        claims.seek(0)
        rows = [tuple(map(int, line.split())) for line in claims]
        others = [row for row in rows if row[1] == step and row[0] != rank]
        kept = save.target
        if others and min(others)[0] < rank:
            kept = f"{save.target}.rank{rank:05d}"
        elif others:  # a higher rank has the name: its file gets the name that it would have got later
            file, holder = os.stat(save.target), min(others)
            if (file.st_dev, file.st_ino) == holder[2:]:
                os.replace(save.target, f"{save.target}.rank{holder[0]:05d}")
        os.replace(save.part, kept)
        file = os.stat(kept)
        claims.seek(0)
        claims.truncate()
        for row in (*others, (rank, step, file.st_dev, file.st_ino)):
            claims.write(" ".join(map(str, row)) + "\n")
    return kept
