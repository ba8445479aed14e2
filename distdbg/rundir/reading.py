"""Open files that others wrote: a regular file or nothing. A FIFO would block the reader, a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from distdbg.errors import ToolMissing


def refuse_unreadable(path: str | Path) -> None:
    """Raise ToolMissing if the file or folder exists and this user may not read it, or of a run its `attempts`."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- text that a user gave: a Path would lose "./"
    except PermissionError:
        raise ToolMissing(f"{str(path)!r} may not be read: a folder above it is closed to you",
                          "Ask its owner, or name a copy.") from None  # fmt: skip
    except (OSError, ValueError):  # ValueError: a null character
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    if os.access(path, os.R_OK | (os.X_OK if is_folder else 0)):
        if is_folder:
            refuse_unreadable(Path(path, "attempts"))
        return
    if status.st_uid == os.geteuid():
        raise ToolMissing(f"{str(path)!r} may not be read", f"Give yourself the right: chmod u+rX {str(path)!r}")
    raise ToolMissing(f"{str(path)!r} belongs to another user, and may not be read", "Ask as its owner.")


def open_regular(path: str | Path, buffering: int = -1) -> BinaryIO:
    """Open a file for reading bytes. Raises OSError, also where it is no regular file."""
    return open(path, "rb", buffering=buffering, opener=_opener)


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)
