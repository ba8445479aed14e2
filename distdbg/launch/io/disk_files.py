"""Files that only grow: their descriptors, their index, and the room that logs leave to everything else."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from distdbg.launch.io.reserve import Reserve
from distdbg.whole_file import WholeFile, make_private_folder, open_own, write_whole

#: One entry of an index this often on the long run …
_ENTRY_EVERY_NS = 20_000_000
#: … and this many at once, so that the first lines of a quiet stream each have their own.
_ENTRIES_AT_ONCE = 50
#: What logs leave free on their file system: events, exit records and the report must still fit.
_RESERVE_BYTES = 4 << 20
_LOOK_EVERY_S = 1.0
_MOST_PIECES = 512  # of one writev; the kernel's own limit is 1024


class OpenFiles:
    """Descriptors to append through; of more than `limit` the longest unused is closed. Makes missing folders."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[Path, int] = OrderedDict()

    def get(self, path: Path) -> int:
        """Raises OSError."""
        descriptor = self._open.get(path)
        if descriptor is not None and _is_deleted(descriptor):
            self._open[path] = self._open_new(path)
            _close(descriptor)  # not before: the new file would have the same inode number, by which readers know it
            return self._open[path]
        if descriptor is None:
            try:
                descriptor = self._open_new(path)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
                self.close_all()
                descriptor = self._open_new(path)
            while len(self._open) >= self._limit:
                _close(self._open.popitem(last=False)[1])
            self._open[path] = descriptor
        self._open.move_to_end(path)
        return descriptor

    def close_all(self) -> None:
        """Also after a pause: a network file system shows others what was written once the file is closed."""
        while self._open:
            _close(self._open.popitem()[1])

    def __len__(self) -> int:
        return len(self._open)

    @staticmethod
    def _open_new(path: Path) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            return open_own(path, flags)
        except FileNotFoundError:
            make_private_folder(path.parent)
            return open_own(path, flags)


def _is_deleted(descriptor: int) -> bool:
    """Return whether no folder holds the file any more, so that what is written to it is lost."""
    try:
        return os.fstat(descriptor).st_nlink == 0
    except OSError:  # ESTALE: deleted by another host of a network file system
        return True


def _close(descriptor: int) -> None:
    """Close the file and ignore errors: the descriptor is closed anyway, and a late error (over quota) helps nobody."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


class Log:
    """One log with its index: where the next byte goes, and which arrivals get an entry of their own."""

    def __init__(self, index: Path | None) -> None:
        self.index = index
        #: monotonic seconds; until then nothing is tried, because of `because`
        self.refused_until = 0.0
        self.because = ""
        self._tokens = float(_ENTRIES_AT_ONCE)
        self._last_ns = 0

    def entries(self, offset: int, pieces: Sequence[tuple[int, int]]) -> bytes:
        """Index lines for pieces of (epoch ns, bytes) written from `offset` on.

        An arrival without an entry belongs to the entry before it: at most one every 20 ms on the long run.
        """
        lines = []
        for t_ns, length in pieces:
            now = max(t_ns, self._last_ns)  # a clock that was set back must not turn a log round
            if self._last_ns:
                self._tokens = min(_ENTRIES_AT_ONCE, self._tokens + (now - self._last_ns) / _ENTRY_EVERY_NS)
            self._last_ns = now
            if self._tokens >= 1:
                self._tokens -= 1
                lines.append(b"%d %d %d\n" % (now, offset, length))
            offset += length
        return b"".join(lines)


class Space:
    """How many bytes of logs the file system may still take. One statvfs a second, more often as it fills."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        #: bytes; 0 where the file system does not say
        self.total = 0
        self._spare = 0
        self._free = 0
        self._reserve = 0

    def allows(self, folder: Path, wanted: int) -> int:
        """At most `wanted`; 0 where only the reserve is left. Raises OSError."""
        now = time.monotonic()
        if now - self._looked > _LOOK_EVERY_S or 0 < self._spare < wanted:
            self._look(folder)
            self._looked = now
        return min(wanted, max(0, self._spare))

    def took(self, count: int) -> None:
        self._spare -= count

    @property
    def because(self) -> str:
        return f"the file system is full: {self._free >> 10} KiB free, {self._reserve >> 10} KiB of it kept for reports"

    def _look(self, folder: Path) -> None:
        while not folder.exists() and folder.parent != folder:
            folder = folder.parent
        found = os.statvfs(folder)
        self.total = found.f_blocks * found.f_frsize
        self._free = found.f_bavail * found.f_frsize
        self._reserve = min(_RESERVE_BYTES, self.total // 4)
        # A file system that counts no blocks says nothing; its own errors will.
        self._spare = self._free - self._reserve if self.total else 1 << 60


class Files:
    """What the disk thread does to files. Nothing here raises: what went wrong is an answer."""

    def __init__(self, most_open: int) -> None:
        self._files = OpenFiles(most_open)
        self._space = Space()
        self.reserve = Reserve()
        self._logs: dict[Path, Log] = {}

    @property
    def open(self) -> int:
        """How many are."""
        return len(self._files)

    def close(self) -> None:
        self._files.close_all()

    def append(self, path: Path, data: bytes) -> tuple[int, str]:
        """Bytes written and, where that was not all, why."""
        written = 0

        def act() -> None:
            nonlocal written
            count, error = write_pieces(self._files.get(path), [data[written:]])
            written += count
            if error:
                raise error

        return written if (because := self._insist(act)) else len(data), because

    def replace(self, path: Path, data: bytes, *, private: bool) -> str:
        """Write the whole file; why not, where that failed."""

        def act() -> None:
            make_private_folder(path.parent)
            write_whole(path, data, private=private)

        return self._insist(act)

    def take(self, path: Path, source: Path) -> str:
        """Copy, rename, and remove the source; why not, where that failed. One that is gone will not come back."""

        def act() -> None:
            with contextlib.suppress(FileNotFoundError), source.open("rb") as whole:
                make_private_folder(path.parent)
                with WholeFile(path) as copy:
                    shutil.copyfileobj(whole, copy)
                source.unlink()

        return self._insist(act)

    def _insist(self, act: Callable[[], None]) -> str:
        """Do a small write, and release the reserve if that may help. Returns the reason where it failed."""
        try:
            act()
        except (OSError, ValueError) as error:
            return self._insist(act) if self.reserve.make_way(error) else _why(error)
        return ""

    def append_log(
        self, path: Path, index: Path | None, batch: Sequence[tuple[int, bytes]], progress: Callable[[], None]
    ) -> tuple[int, str]:
        """Add (epoch ns, bytes) to a log and its index: bytes written and, where that was not all, why.

        After a refusal nothing is tried for a second. `progress` is called between two writes.
        """
        size = sum(len(data) for _, data in batch)
        log = self._logs.setdefault(path, Log(index))
        if time.monotonic() < log.refused_until:
            return 0, log.because
        try:
            written, because = self._append_log(path, log, batch, progress)
        except (OSError, ValueError) as error:
            written, because = 0, _why(error)
        if written < size:
            log.because, log.refused_until = because, time.monotonic() + _LOOK_EVERY_S
        return written, because

    def _append_log(
        self, path: Path, log: Log, batch: Sequence[tuple[int, bytes]], progress: Callable[[], None]
    ) -> tuple[int, str]:
        size = sum(len(data) for _, data in batch)
        allowed = self._space.allows(path.parent, size)
        if size and not allowed:
            return 0, self._space.because
        descriptor = self._files.get(path)
        if size:
            self._space.took(self.reserve.stand(path.parent, self._space.total))
            allowed = self._space.allows(path.parent, size)
        offset = os.lseek(descriptor, 0, os.SEEK_END)
        written, error = write_pieces(descriptor, _first_bytes([data for _, data in batch], allowed))
        progress()
        self._space.took(written)
        if log.index is not None and written:
            entries = log.entries(offset, _first_stamps(batch, written))
            if entries:  # without it the log is whole still, and only less exactly dated
                with contextlib.suppress(OSError):
                    self._space.took(write_pieces(self._files.get(log.index), [entries])[0])
        if error is not None:
            self.reserve.log_refused(error)
        return written, _why(error) if error else self._space.because


def _why(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def write_pieces(descriptor: int, pieces: Sequence[bytes]) -> tuple[int, OSError | None]:
    """All of them, in as few system calls as it takes: bytes written and, where that was not all, why."""
    written = 0
    for first in range(0, len(pieces), _MOST_PIECES):
        batch: list[bytes | memoryview] = list(pieces[first : first + _MOST_PIECES])
        while batch:
            try:
                count = os.writev(descriptor, batch)
            except OSError as error:
                return written, error
            written += count
            while batch and count >= len(batch[0]):
                count -= len(batch.pop(0))
            if batch and count:
                batch[0] = memoryview(batch[0])[count:]
    return written, None


def _first_bytes(pieces: Sequence[bytes], count: int) -> list[bytes]:
    taken: list[bytes] = []
    for piece in pieces:
        taken.append(piece[:count])
        count -= len(taken[-1])
        if count <= 0:
            break
    return taken


def _first_stamps(batch: Sequence[tuple[int, bytes]], count: int) -> list[tuple[int, int]]:
    """(epoch ns, length) of the pieces that the first `count` bytes came in."""
    stamps: list[tuple[int, int]] = []
    for t_ns, data in batch:
        if count <= 0:
            break
        stamps.append((t_ns, min(len(data), count)))
        count -= len(data)
    return stamps
