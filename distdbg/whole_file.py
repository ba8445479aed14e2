"""The only writer of whole files: under another name in the same folder, then renamed.

A reader sees the old file or the new one, never half of one. Only a regular file is replaced: a device, a FIFO, a
folder or a link at the path is refused; links among the folders above it are followed. What is appended to or mapped
is opened by `open_own`, which follows the same rule. Standard library, and of that `os` and `stat` alone: ranks load
it, too.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import BinaryIO

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
#: A name that is taken is not used; this many are tried.
_NAMES_TRIED = 8


class NotARegularFile(OSError):
    """`strerror` says what is there: "it is a symbolic link, and only regular files are replaced"."""

    def __init__(self, kind: str, path: str) -> None:
        super().__init__(0, f"it is {kind}, and only regular files are replaced", path)


def refuse_odd_target(path: str | os.PathLike[str]) -> int | None:
    """The permission bits of the regular file at `path`, None where there is nothing. Raises NotARegularFile."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise NotARegularFile(kind, os.fspath(path))
    return stat.S_IMODE(mode) & 0o777


class WholeFile:
    """`with WholeFile(path) as file:` the file takes the path's place once the block has ended well.

    A `private` file is 0600, as everything in a run directory. Any other has the mode of the file that it replaces,
    or what the umask leaves of 0666. `sync`: on the disk before it takes the place, for what nobody could make again.
    Raises OSError; then the path is as it was, and nothing else is left.
    """

    def __init__(self, path: str | os.PathLike[str], *, private: bool = True, sync: bool = False) -> None:
        self.path = os.fspath(path)
        self._private, self._sync = private, sync

    def __enter__(self) -> BinaryIO:
        mode = refuse_odd_target(self.path)
        self.temporary, descriptor = _new_beside(self.path, 0o600 if self._private else 0o666)
        self._file: BinaryIO = os.fdopen(descriptor, "wb")
        if mode is not None and not self._private:
            try:
                os.chmod(self.temporary, mode)
            except OSError:  # a file system without modes
                pass
        return self._file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._sync:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()
            if kind is None:
                os.rename(self.temporary, self.path)
        except BaseException:
            _remove(self.temporary)
            raise
        if kind is not None:
            _remove(self.temporary)


def write_whole(path: str | os.PathLike[str], data: bytes | str, *, private: bool = True, sync: bool = False) -> None:
    """`data` as the file at `path`, text as UTF-8. As WholeFile; raises OSError."""
    with WholeFile(path, private=private, sync=sync) as file:
        file.write(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    from json import dumps

    write_whole(path, dumps(value, indent=1, ensure_ascii=True, default=str) + "\n")


def write_through(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Write a file by a function that takes a name only, as torch.save: `write` gets the name of an empty private file.

    Raises what it raises; then no file is left.
    """
    whole = WholeFile(path)
    with whole:
        write(whole.temporary)


def write_link(path: str | os.PathLike[str], target: str) -> None:
    """Make `path` a symbolic link to `target`, in place of an earlier link alone. Raises OSError."""
    if os.path.lexists(path) and not os.path.islink(path):
        raise FileExistsError(0, "something that is no link has that name", os.fspath(path))
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}.tmp")
    os.symlink(target, temporary)
    try:
        os.rename(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def open_own(path: str | os.PathLike[str], flags: int, *, private: bool = True) -> int:
    """A descriptor of a regular file to append to, to map, or to fill piece by piece where readers follow it.

    One that `flags` makes is 0600 if `private`. Raises OSError. Follows no link and waits for no reader of a FIFO.
    """
    mode = 0o600 if private else 0o666
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        refuse_odd_target(path)
        raise NotARegularFile("no regular file", os.fspath(path))
    return descriptor


def why_not_trusted(folder: str | os.PathLike[str]) -> str:
    """Who else may put files of other names into it, or rename ours, in words; empty where nobody, or it is not there.

    A folder of root's counts as trusted, and one that everybody may write to if it is sticky, as /tmp.
    """
    try:
        statuses = os.lstat(folder), os.stat(folder)
    except OSError:
        return ""
    if any(status.st_uid not in (os.getuid(), 0) for status in statuses):
        return "it belongs to another user"
    mode = statuses[1].st_mode
    return "every user may write to it" if mode & stat.S_IWOTH and not mode & stat.S_ISVTX else ""


def refuse_linked_folder(folder: str | os.PathLike[str]) -> None:
    """Raises OSError if it is a link: files that are written there would leave the run directory."""
    if os.path.islink(folder):
        raise NotADirectoryError(0, "it is a symbolic link", os.fspath(folder))


def refuse_foreign_folder(folder: str | os.PathLike[str]) -> None:
    """Raises OSError where it is a link, or not this user's own."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        kind = "it belongs to another user" if stat.S_ISDIR(status.st_mode) else "it is no folder"
        raise NotADirectoryError(0, kind, os.fspath(folder))


def is_foreign_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether another user owns it who would not own what this process makes there. Raises OSError if it is not there.

    Some network file systems and mounts of containers give all files one owner: a file that is made and removed shows
    it. A folder that cannot be written is not foreign: writing there has its own reason to fail.
    """
    owner = os.stat(folder).st_uid
    if owner == os.geteuid():
        return False
    try:
        name, descriptor = _new_beside(os.path.join(folder, "owner"), 0o600)
    except OSError:
        return False
    own = os.fstat(descriptor).st_uid
    os.close(descriptor)
    _remove(name)
    return own != owner


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """The folder and those above it that are missing, each 0700. Raises OSError."""
    name = os.fspath(path)
    try:
        os.mkdir(name, 0o700)
    except FileExistsError:
        if not os.path.isdir(name):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(name)
        if not parent:
            raise
        make_private_folder(parent)
        make_private_folder(name)


def _new_beside(path: str, mode: int) -> tuple[str, int]:
    folder, name = os.path.split(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for tries_left in reversed(range(_NAMES_TRIED)):
        temporary = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}.tmp")
        try:
            return temporary, os.open(temporary, flags, mode)
        except FileExistsError:
            if not tries_left:
                raise
    raise AssertionError


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
