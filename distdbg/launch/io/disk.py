"""Write to the run directory from an agent or a launcher: one thread may hang, its caller never does.

    disk = DiskWriter()
    disk.append(events, line)                             small: always taken
    disk.append(stdout, data, log=True, index=times)      bounded: look at room() before you read more
    disk.write_whole(exit_record, data)

What a file system refuses (full, over quota, broken) is tried again every second: small things are kept for that,
bytes of logs are dropped and counted in `lost`. What it does not answer to (frozen) holds up the thread alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distdbg.launch.io.disk_files import Files

LOG_BYTES = 16 << 20
#: A write that takes longer than this is one that the job must not wait for.
FROZEN_S = 0.5
_OTHER_BYTES = 64 << 20  # small things kept while nothing can be written; days of them
_BATCH_BYTES = 1 << 20
_PIECE_COST = 128  # what a queued piece takes beside its bytes
_LINGER_S = 0.02
_LINGER_BELOW = 256 << 10
_RETRY_S = 1.0
_IDLE_S = 1.0
_OPEN_FILES = 128


@dataclass
class _PendingWrite:
    """Something small to do to one path."""

    path: Path
    how: Literal["append", "whole", "public", "take"]
    data: bytes


class DiskWriter:
    """See the module. Every method may be called from one thread; none blocks but flush and close, none raises.

    `wake` is an event descriptor that becomes readable when room has come back or more bytes were lost.
    """

    def __init__(self, log_bytes: int = LOG_BYTES) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._limit = log_bytes
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        # guarded by _changed, which is never held during a write
        self._changes: deque[_PendingWrite] = deque()
        self._change_bytes = 0
        self._logs: OrderedDict[Path, deque[tuple[int, bytes]]] = OrderedDict()
        self._log_cost = 0
        self._indexes: dict[Path, Path | None] = {}
        self._lost: dict[Path, tuple[int, str]] = {}
        self._refused: dict[Path, str] = {}
        self._busy_since: float | None = None
        self._sleeping = False
        #: a caller waits, or much is queued: write at once; and whether more was waited for already
        self._urgent = False
        self._lingered = False
        self._full_was_seen = False
        self._closing = False
        self._closed = False
        # the thread's own
        self._held: OrderedDict[Path, deque[_PendingWrite]] = OrderedDict()
        self._retry_at = 0.0
        self._wrote_log_at = 0.0
        self._files = Files(_OPEN_FILES)

    # -- for the caller -------------------------------------------------------------------------------------

    def append(self, path: Path, data: bytes, *, log: bool = False, index: Path | None = None) -> bool:
        """Add to the end of a file; its folder is made if it is missing. False where the bytes were dropped.

        With `log` the bytes count against the bound. With `index` the time of this call is noted there, too.
        """
        if not log:
            return self._change(_PendingWrite(path, "append", data))
        with self._changed:
            if self._log_cost >= self._limit:
                self._full_was_seen = True
                self._lose(path, len(data), self._why_no_room())
                return False
            if self._closed or self._closing:
                return False
            self._indexes[path] = index
            self._logs.setdefault(path, deque()).append((time.time_ns(), data))
            self._log_cost += len(data) + _PIECE_COST
            self._stir(urgent=self._log_cost > _LINGER_BELOW)
        return True

    def write_whole(self, path: Path, data: bytes, *, private: bool = True) -> bool:
        """A reader never sees half of it."""
        return self._change(_PendingWrite(path, "whole" if private else "public", data))

    def take(self, path: Path, source: Path) -> bool:
        """Move a file of the node's own memory here; `source` is removed after that. Its bytes wait where they are."""
        return self._change(_PendingWrite(path, "take", os.fsencode(source)))

    def room(self) -> int:
        """Bytes of logs that may be brought now; 0 or less: bring none until `wake` is readable."""
        with self._changed:
            left = self._limit - self._log_cost
            self._full_was_seen |= left <= 0
            return left

    def frozen_for(self) -> float:
        """Seconds since the write that is going on began; 0 where none is."""
        since = self._busy_since
        return time.monotonic() - since if since is not None else 0.0

    @property
    def lost(self) -> dict[Path, tuple[int, str]]:
        """Path -> bytes that were never written, and why the last of them were not."""
        with self._changed:
            return dict(self._lost)

    @property
    def refusal(self) -> tuple[Path, str] | None:
        """The first small thing that the file system does not take now, and why."""
        with self._changed:
            return next(iter(self._refused.items()), None)

    def why_refused(self, path: Path) -> str:
        """Why the file system does not take the last small thing for `path`; empty if it has taken it."""
        with self._changed:
            return self._refused.get(path, "")

    def flush(self, deadline: float) -> bool:
        """Wait until all is written that the file system takes; False where it has not in `deadline` seconds."""
        with self._changed:
            self._retry_at = 0.0
            self._stir(urgent=True)
            return self._changed.wait_for(
                lambda: self._is_empty() and self._busy_since is None and not (self._held and self._retry_at == 0.0),
                deadline,
            )

    def close(self, deadline: float) -> bool:
        """Flush and end the thread; False if it did not end in time. `lost` counts what could not be written."""
        with self._changed:
            self._closing, self._retry_at = True, 0.0
            thread = self._thread
            self._stir(urgent=True)
        if thread is not None:
            thread.join(deadline)
        with self._changed:
            self._closed = True
            if thread is not None and thread.is_alive():
                return False
        with contextlib.suppress(OSError):
            os.close(self.wake)
        return True

    # -- under the lock -------------------------------------------------------------------------------------

    def _change(self, change: _PendingWrite) -> bool:
        with self._changed:
            if self._closed or self._closing:
                return False
            if self._change_bytes > _OTHER_BYTES:
                self._lose(change.path, len(change.data), self._why_no_room())
                return False
            self._changes.append(change)
            self._change_bytes += len(change.data) + _PIECE_COST
            self._stir(urgent=True)
        return True

    def _stir(self, *, urgent: bool) -> None:
        """Make sure that the thread lives and looks; a few bytes of a log may wait for more."""
        if self._thread is None and not self._closed and not self._is_empty():
            self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
            self._thread.start()
        if self._sleeping or (urgent and not self._urgent):
            self._urgent |= urgent
            self._changed.notify_all()

    def _lose(self, path: Path, count: int, because: str) -> None:
        if count:
            self._lost[path] = (self._lost.get(path, (0, ""))[0] + count, because)
            self._ring()

    def _why_no_room(self) -> str:
        hanging = self.frozen_for()
        if hanging > FROZEN_S:
            return f"the file system did not answer for {hanging:.1f} s"
        return "more was printed than the disk takes"

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self.wake, 1)

    def _is_empty(self) -> bool:
        return not self._changes and not self._logs

    # -- the thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._wait_for_work():
            self._retry_held()
            with self._changed:
                change, log = self._take()
            if change is not None:
                if (held := self._held.get(change.path)) is not None:
                    held.append(change)  # what came first is written first
                elif not self._try(change):
                    self._held[change.path] = deque([change])
                    self._retry_at = time.monotonic() + _RETRY_S
            elif log is not None:
                self._write_log(*log)
            with self._changed:
                self._busy_since = None
                if self._full_was_seen and self._log_cost < self._limit // 2:
                    self._full_was_seen = False
                    self._ring()
                self._changed.notify_all()
        self._files.close()
        self._files.reserve.end()  # for the launcher, whose report is still to come
        with self._changed:
            for path, changes in self._held.items():
                self._lose(path, sum(len(c.data) for c in changes), "the file system took nothing to the end")
            self._held.clear()
            self._busy_since = None
            self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """False at the end. Marks the thread busy."""
        with self._changed:
            while self._is_empty():
                self._lingered = self._urgent = False
                if self._closing and (not self._held or self._retry_at > 0):
                    return False
                if self._held and time.monotonic() >= self._retry_at:
                    break
                self._sleep()
            # Words that come alone are written at once, those that follow soon after are written together.
            soon = time.monotonic() - self._wrote_log_at < _LINGER_S
            if self._logs and soon and not self._lingered:
                self._changed.wait_for(lambda: self._urgent or bool(self._changes), _LINGER_S)
                self._lingered = True
            self._busy_since = self._wrote_log_at = time.monotonic()
            return True

    def _sleep(self) -> None:
        """Wait for new work, for delayed writes that are due, or for unused files to close."""
        patience = None if not (self._held or self._files.open) else _IDLE_S
        self._sleeping = True
        came = self._changed.wait(patience)
        self._sleeping = False
        if not came and self._files.open:
            self._busy_since = time.monotonic()
            self._changed.release()
            try:
                self._files.close()
            finally:
                self._changed.acquire()
                self._busy_since = None

    def _take(self) -> tuple[_PendingWrite | None, tuple[Path, list[tuple[int, bytes]]] | None]:
        """The next small change, joined with those after it for the same file; else a batch of the next log."""
        if self._changes:
            change = self._changes.popleft()
            while change.how == "append" and self._changes and len(change.data) < _BATCH_BYTES:
                following = self._changes[0]
                if following.path != change.path or following.how != "append":
                    break
                change = _PendingWrite(change.path, "append", change.data + self._changes.popleft().data)
                self._change_bytes -= _PIECE_COST
            return change, None
        if not self._logs:
            return None, None
        path, waiting = self._logs.popitem(last=False)
        batch: list[tuple[int, bytes]] = []
        size = 0
        while waiting and size < _BATCH_BYTES:
            batch.append(waiting.popleft())
            size += len(batch[-1][1])
        if waiting:
            self._logs[path] = waiting  # to the end of the row: the others are served before its next batch
        return None, (path, batch)

    def _retry_held(self) -> None:
        if not self._held or time.monotonic() < self._retry_at:
            return
        for path in list(self._held):
            waiting = self._held[path]
            while waiting and self._try(waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._held[path]
        self._retry_at = time.monotonic() + _RETRY_S

    def _try(self, change: _PendingWrite) -> bool:
        size = len(change.data)
        self._mark_progress()
        if change.how == "append":
            written, because = self._files.append(change.path, change.data)
            change.data = change.data[written:]  # the rest of it later: a line is never written twice
        elif change.how == "take":
            because = self._files.take(change.path, Path(os.fsdecode(change.data)))
        else:
            because = self._files.replace(change.path, change.data, private=change.how == "whole")
        with self._changed:
            self._change_bytes -= size - len(change.data) if because else size + _PIECE_COST
            if because:
                self._refused[change.path] = because
            else:
                self._refused.pop(change.path, None)
        return not because

    def _write_log(self, path: Path, batch: list[tuple[int, bytes]]) -> None:
        size = sum(len(data) for _, data in batch)
        written, because = self._files.append_log(path, self._indexes[path], batch, self._mark_progress)
        with self._changed:
            self._log_cost -= size + _PIECE_COST * len(batch)
            self._lose(path, size - written, because)

    def _mark_progress(self) -> None:
        """What moves, however slowly, is not frozen."""
        self._busy_since = time.monotonic()
