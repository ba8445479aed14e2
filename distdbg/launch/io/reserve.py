"""Keep room for small files where free space is not known: under a quota, and beside others who fill the disk.

A file without a name that makes way. Logs are written only while it stands, so that they never take what events, exit
records and the report will need; statvfs, which says it in time on other file systems, knows nothing of quotas. It is
deleted as soon as it is open: its room is free again when it is closed, also by SIGKILL, and if the folder was moved.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from distdbg.whole_file import open_own

_BYTES = 256 << 10
#: After a refusal logs go on where so much more can be written: what others have made way for is not theirs.
_BYTES_AGAIN = 4 << 20
_AGAIN_S = 10.0
#: Of a small file system, which says itself when it is nearly full, it takes no more than this.
_SHARE = 16
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The disk thread's own: one of a process."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._size = 0
        self._refusal: OSError | None = None
        self._again_at = 0.0
        #: it cannot be made, and not for want of room: logs are written without it
        self._impossible = False

    def stand(self, folder: Path, total: int) -> int:
        """Make the reserve before a log is written; returns the bytes it added. `total`: the file system's, 0 where
        unknown.

        Raises OSError where there is no room, or was none a moment ago.
        """
        if self._impossible or (self._size and self._refusal is None):
            return 0
        if self._refusal is not None and time.monotonic() < self._again_at:
            raise OSError(self._refusal.errno, self._refusal.strerror)
        size = min(_BYTES, total // _SHARE or _BYTES)
        wanted = size if self._refusal is None else min(_BYTES_AGAIN, total // _SHARE or _BYTES_AGAIN)
        try:
            if self._descriptor is None:
                self._descriptor = _open_unnamed(folder)
            _grow(self._descriptor, wanted)
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            self._shrink_back()
            if error.errno not in _NO_ROOM:
                self._impossible = True
                return 0
            self.log_refused(error)
            raise
        before, self._size, self._refusal = self._size, size, None
        return size - before

    def log_refused(self, error: OSError) -> None:
        """Note that a log could not be written; if there was no room, nothing more is tried for a while."""
        if error.errno in _NO_ROOM:
            self._refusal, self._again_at = error, time.monotonic() + _AGAIN_S

    def make_way(self, error: Exception) -> bool:
        """Something small was refused: whether there may be more room for it now. Logs wait then."""
        if not self._size or not isinstance(error, OSError) or error.errno not in _NO_ROOM:
            return False
        self.end()
        self.log_refused(error)
        return True

    def end(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        self._descriptor, self._size = None, 0

    def _shrink_back(self) -> None:
        if not self._size:
            self.end()
        elif self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)


def _open_unnamed(folder: Path) -> int:
    path = folder / f".reserve.{os.getpid()}"
    descriptor = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    path.unlink()
    return descriptor


def _grow(descriptor: int, wanted: int) -> None:
    while (left := wanted - os.fstat(descriptor).st_size) > 0:
        os.write(descriptor, os.urandom(left))  # zeros take no room on a file system that compresses
