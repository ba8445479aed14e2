"""Make the result under another name beside DST, and rename it when it is complete and checked."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.shrink.checkpoint.source import CutOffError
from distdbg.whole_file import refuse_foreign_folder, write_whole


@contextmanager
def staged(destination: Path, plan: str, resume: bool = True) -> Iterator[Path]:
    """A folder to write into. When the block ends well it becomes `destination`, which must not exist or be empty.

    When it ends badly, what was written is removed, but for an interrupt or a failing connection or disk (OSError,
    KeyboardInterrupt): then it is kept, and the same `plan` (any text that says what is to be made) goes on from it.
    Without `resume` an interrupt leaves nothing, either.
    """
    refuse_an_occupied(destination)
    folder = partial_of(destination)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_foreign_folder(folder)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be made: {error.strerror}", "Name a DST in a folder that you may write."
        ) from None
    with _alone(folder, destination):
        _begin(folder, plan, resume)
        try:
            yield folder
        except (CutOffError, KeyboardInterrupt):
            if not resume:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise UsageError(f"{destination} could not be finished: {where}{error.strerror or error}",
                             "Mend that; the same command continues from what was written.") from None  # fmt: skip
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _PLAN).unlink()
        if destination.is_dir():
            destination.rmdir()
        folder.rename(destination)


def partial_of(destination: Path) -> Path:
    """The folder's name until it is whole."""
    return destination.with_name(f".{destination.name}.partial")


def refuse_an_occupied(destination: Path) -> None:
    """DST may be absent or an empty folder."""
    if destination.is_symlink() or (destination.exists() and not destination.is_dir()):
        raise UsageError(f"{destination} is no folder", "Name a DST that does not exist yet.")
    if destination.is_dir() and any(destination.iterdir()):
        raise UsageError(f"{destination} is not empty", "Name a DST that does not exist yet; nothing is overwritten.")


def refuse_a_full_disk(destination: Path, needed: int) -> None:
    """`needed` in bytes; what an earlier try has written already counts."""
    folder = destination.parent
    while not folder.exists():
        folder = folder.parent
    partial = partial_of(destination)
    there = sum(f.stat().st_size for f in partial.iterdir() if f.is_file()) if partial.is_dir() else 0
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if needed - there > free:
        raise UsageError(
            f"{destination} needs {needed / 1e9:.2f} GB and the disk has {free / 1e9:.2f} GB free",
            "Name a DST on another disk, or keep fewer layers.",
        )


_PLAN = ".plan"


@contextmanager
def _alone(folder: Path, destination: Path) -> Iterator[None]:
    """Two commands with the same DST do not write into one folder."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another command is writing {destination}", "Wait for it, or name another DST.") from None
        yield
    finally:
        os.close(lock)


def _begin(folder: Path, plan: str, resume: bool) -> None:
    """Leave what an earlier try with the same plan wrote; remove that of any other."""
    note = folder / _PLAN
    if resume and note.is_file() and note.read_text(encoding="utf-8", errors="replace") == plan:
        return
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    write_whole(note, plan)
