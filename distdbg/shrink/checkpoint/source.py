"""Sources of a model: a folder, or a server that answers ranges. Small files whole, weights by byte ranges."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from distdbg.errors import EvidenceUnreadable, Refused, UsageError

#: a config, an index or a tokenizer is smaller
MOST_OF_A_SMALL_FILE = 400_000_000
_BLOCK = 4 << 20


class CutOffError(EvidenceUnreadable):
    """A source stopped answering in the middle; what came of it is kept, and the same command goes on from there."""


class FileReader(Protocol):
    """One open file of a source."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Exactly `length` bytes from byte `start` on; raises EvidenceUnreadable where the file ends before."""
        ...

    def copy(self, start: int, length: int, to: int) -> None:
        """Append exactly these bytes to the open file descriptor `to`."""
        ...


class CheckpointSource(Protocol):
    """A model's files by name: relative, with `/` between folders."""

    bytes_read: int

    @property
    def where(self) -> str:
        """What a person calls it."""
        ...

    def files(self) -> list[str]: ...

    def small(self, name: str) -> bytes | None:
        """A small file's content, None where there is none."""
        ...

    def open(self, name: str) -> AbstractContextManager[FileReader]: ...


@dataclass
class FolderReader:
    descriptor: int
    size: int
    name: str
    source: Folder

    def read(self, start: int, length: int) -> bytes:
        found = os.pread(self.descriptor, length, start)
        self.source.bytes_read += len(found)
        if len(found) < length:
            raise self._short()
        return found

    def copy(self, start: int, length: int, to: int) -> None:
        """Within the kernel where file systems allow it: no byte passes through this process."""
        while length:
            done = self._some(start, length, to)
            if not done:
                raise self._short()
            start, length = start + done, length - done
            self.source.bytes_read += done

    def _some(self, start: int, length: int, to: int) -> int:
        if self.source.in_kernel:
            try:
                return os.copy_file_range(self.descriptor, to, min(length, 1 << 30), offset_src=start)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                    raise
                self.source.in_kernel = False  # two file systems, or one that cannot
        try:
            return os.sendfile(to, self.descriptor, start, min(length, 1 << 30))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
        block = os.pread(self.descriptor, min(length, _BLOCK), start)
        return os.write(to, block) if block else 0

    def _short(self) -> EvidenceUnreadable:
        return EvidenceUnreadable(f"{self.name} became shorter while it was read", "Wait until it is written.")


def is_relative_name(name: str) -> bool:
    """Whether a file name stays below the folder that it is joined to, on any system."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name


def resolve_within(folder: Path, name: str) -> Path:
    """Return the real path of a file of a model's folder.

    Raises Refused if a link leads out of the folder. In a Hugging Face cache the files of a snapshot are links to
    `blobs` of the repository, or of the whole cache: these are allowed.
    """
    home = folder.resolve()
    path = Path(os.path.realpath(folder / name))
    allowed = [home]
    for snapshot in (home, *home.parents):
        repository = snapshot.parent.parent
        if snapshot.parent.name == "snapshots" and repository.name.startswith("models--"):
            allowed += [repository / "blobs", repository.parent / "blobs"]
    if not any(path.is_relative_to(parent) for parent in allowed):
        raise Refused(
            f"{folder / name} is a link to {path}, which is not in the model's folder",
            "If that file belongs to the model, copy it into the folder.",
        )
    return path


@dataclass
class Folder:
    """A local directory. Links within it and to the blobs of a Hugging Face cache are followed; other links and what
    is not a regular file are refused."""

    path: Path
    where: str = ""
    bytes_read: int = 0
    in_kernel: bool = True
    _known: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.where = self.where or str(self.path)

    def files(self) -> list[str]:
        if not self._known:
            self._known = sorted(self._below(self.path, ""))
        return self._known

    def _below(self, folder: Path, prefix: str) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be listed: {error.strerror}", "Name a folder that you may read."
            ) from None
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._below(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                yield f"{prefix}{entry.name}"

    def refuse_the_unreadable(self, names: list[str]) -> None:
        """Check before slow work that these can be opened and are files."""
        for name in names:
            with self.open(name):
                pass

    def small(self, name: str) -> bytes | None:
        return self.small_at(name) if name in self.files() else None

    def small_at(self, name: str) -> bytes:
        with self.open(name) as reader:
            if reader.size > MOST_OF_A_SMALL_FILE:
                raise EvidenceUnreadable(f"{self.path / name} has {reader.size} bytes, far too many", "Look into it.")
            return reader.read(0, reader.size)

    @contextmanager
    def open(self, name: str) -> Iterator[FolderReader]:
        path = self.path / name
        try:
            # the path is resolved, so a link here was put in place since
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
            descriptor = os.open(resolve_within(self.path, name), flags)
        except OSError as error:
            why = "its links lead in a circle" if error.errno == errno.ELOOP else (error.strerror or "unknown error")
            raise EvidenceUnreadable(f"{path} cannot be opened: {why}", "Fetch the model again.") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise EvidenceUnreadable(f"{path} is no regular file", "Put the model's file in its place.")
            yield FolderReader(descriptor, status.st_size, str(path), self)
        finally:
            os.close(descriptor)
