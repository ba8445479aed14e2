"""Open files that others wrote: a regular file or nothing. A FIFO would block the reader, a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | Path, buffering: int = -1) -> BinaryIO:
    """Open a file for reading bytes. Raises OSError, also where it is no regular file."""
    return open(path, "rb", buffering=buffering, opener=_opener)


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)
