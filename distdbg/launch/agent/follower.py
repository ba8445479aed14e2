"""Read what the ranks print: one FIFO for each stream, read in the agent's loop, written by the disk thread.

The reader stands before the first writer and stays until the last has gone, so that nobody who prints ever meets a
pipe without a reader. Where the disk falls behind, reading pauses and the pipes fill, as they would before a slow
disk; where it does not answer at all, reading goes on and what does not fit is dropped and counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distdbg.launch.io.disk import FROZEN_S, DiskWriter

_READ_BYTES = 256 << 10
_READS_A_TURN = 4
_PIPE_BYTES = 1 << 20
#: Our share of what the kernel lets one user hold in pipes: over the limit a user's new pipes get a page or two.
_SHARE_OF_PIPES = 4
_PIPE_LIMIT = Path("/proc/sys/fs/pipe-user-pages-soft")
#: A stream that brings a few bytes at a time, often, is read this much later, in one go.
_REST_S = 0.005
_OFTEN_S = 0.01
_BUSY_S = 0.1
_LOOK_AGAIN_S = 0.1
_REPORT_EVERY_S = 10.0

#: (rank, stream, bytes, because)
OnLoss = Callable[[int, str, int, str], None]
#: (seconds, action): call it then, from the same loop
After = Callable[[float, Callable[[], None]], None]


@dataclass(eq=False)
class _Stream:
    rank: int
    name: str
    reader: int
    #: a writing end of ours, so that the end is not seen before the beginning; None once the rank has started
    holder: int | None
    capacity: int
    log: Path
    index: Path
    total: int = 0
    registered: bool = False
    rank_is_gone: bool = False
    last_read: float = 0.0
    busy_until: float = 0.0
    lost_reported: int = 0
    lost_reported_at: float = float("-inf")


class Follower:
    """All streams of one node. `on_loss` hears of bytes that were dropped, at once and then at most every 10 s.

    Registers with `selector`: a key whose data cannot be called is ours, and belongs into `on_readable`.
    """

    def __init__(self, selector: selectors.BaseSelector, writer: DiskWriter, on_loss: OnLoss, after: After) -> None:
        self._selector = selector
        self._writer = writer
        self._on_loss = on_loss
        self._after = after
        self._streams: dict[tuple[int, str], _Stream] = {}
        #: of ranks that have ended, or were started again, while another process still holds their pipe
        self._lingering: set[_Stream] = set()
        self._past: list[_Stream] = []
        self._waiting: set[_Stream] = set()
        self._resting: set[_Stream] = set()
        try:
            pages = int(_PIPE_LIMIT.read_text())
        except (OSError, ValueError):
            pages = 16384
        self._pipe_budget = pages * os.sysconf("SC_PAGE_SIZE") // _SHARE_OF_PIPES
        selector.register(writer.wake, selectors.EVENT_READ, self)

    def open(self, rank: int, stream: str, fifo: Path, log_path: Path, index_path: Path) -> None:
        """Make the FIFO and be ready to read it. Raises OSError where it cannot be made."""
        self._let_go(rank, stream)
        os.mkfifo(fifo, 0o600)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        holder = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        made = _Stream(rank, stream, reader, holder, self._widen(reader), log_path, index_path)
        self._streams[rank, stream] = made
        self._register(made)
        self._writer.append(log_path, b"", log=True, index=index_path)  # an empty log says: it printed nothing

    def started(self, rank: int) -> None:
        """The rank holds its own ends now: from here on the end of its streams can be seen."""
        for stream in self._of(rank):
            if stream.holder is not None:
                os.close(stream.holder)
                stream.holder = None

    def on_readable(self, key: selectors.SelectorKey) -> None:
        if key.data is self:
            with contextlib.suppress(OSError):
                os.eventfd_read(self._writer.wake)
            self._look_again()
            self._report_losses()
        elif isinstance(key.data, _Stream):
            self._read_turn(key.data)

    def close_rank(self, rank: int) -> None:
        """Read what its pipes hold now. Pipes that other processes hold open are read on in the loop."""
        self.started(rank)
        for stream in self._of(rank):
            self._let_go(rank, stream.name)
            self._drain(stream)

    def pending(self) -> int:
        """Streams that may still bring something."""
        return sum(s.registered or s in self._waiting or s in self._resting for s in self._all())

    @property
    def totals(self) -> dict[tuple[int, str], int]:
        """(rank, stream) -> bytes that the newest start of that rank has printed so far, the dropped ones included."""
        return {name: stream.total for name, stream in self._streams.items()}

    def close(self, deadline: float) -> None:
        """Take the last bytes, let the disk catch up for at most `deadline` seconds, report every loss, let go."""
        until = time.monotonic() + deadline
        for stream in list(self._all()):
            stream.rank_is_gone = True
            while not self._drain(stream) and time.monotonic() < until:
                self._writer.flush(min(0.1, max(0.0, until - time.monotonic())))
        for stream in list(self._all()):
            self._shut(stream)
        self._writer.flush(max(0.0, until - time.monotonic()))
        self._report_losses(last=True)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._writer.wake)

    # -- reading --------------------------------------------------------------------------------------------

    def _read_turn(self, stream: _Stream) -> None:
        """A few reads, then the others have their turn."""
        before = stream.total
        for _ in range(_READS_A_TURN):
            if not stream.registered:
                return  # closed, or set aside, since the selector named it
            if not self._may_read():
                self._wait(stream)
                return
            if len(self._read(stream) or b"") < _READ_BYTES:
                break
        self._perhaps_rest(stream, stream.total - before)

    def _read(self, stream: _Stream) -> bytes | None:
        """What was there; empty where nothing is now; None at the end, after which nothing is watched any more."""
        try:
            data = os.read(stream.reader, _READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            if stream.rank_is_gone:
                self._shut(stream)
            else:
                self._unregister(stream)  # kept open: its file is still known by name
            return None
        stream.total += len(data)
        if not self._writer.append(stream.log, data, log=True, index=stream.index):
            self._report(stream)
        return data

    def _drain(self, stream: _Stream) -> bool:
        """Read what the pipe held at this moment, however fast it is filled. False: the disk has no room now."""
        left = stream.capacity
        while left > 0 and stream.reader >= 0:
            if not self._may_read():
                self._wait(stream)
                return False
            data = self._read(stream)
            if not data:
                break
            left -= len(data)
        return True

    def _may_read(self) -> bool:
        return self._writer.room() > 0 or self._writer.frozen_for() > FROZEN_S

    def _perhaps_rest(self, stream: _Stream, count: int) -> None:
        """Many small writes cost a turn of the loop each; together they cost one. A stream in full flow never rests."""
        now = time.monotonic()
        often = now - stream.last_read < _OFTEN_S
        stream.last_read = now
        if count > stream.capacity // 16:
            stream.busy_until = now + _BUSY_S
        elif often and now > stream.busy_until and stream.registered:
            self._unregister(stream)
            if not self._resting:
                self._after(_REST_S, self._wake_rested)
            self._resting.add(stream)

    def _wake_rested(self) -> None:
        rested, self._resting = self._resting, set()
        for stream in rested:
            self._register(stream)

    def _wait(self, stream: _Stream) -> None:
        self._unregister(stream)
        if not self._waiting:
            self._after(_LOOK_AGAIN_S, self._look_again)
        self._waiting.add(stream)

    def _look_again(self) -> None:
        if self._waiting and not self._may_read():
            self._after(_LOOK_AGAIN_S, self._look_again)
            return
        waited, self._waiting = self._waiting, set()
        for stream in waited:
            self._register(stream)

    # -- losses ---------------------------------------------------------------------------------------------

    def _report_losses(self, *, last: bool = False) -> None:
        lost = self._writer.lost
        if lost:
            for stream in [*self._all(), *self._past]:
                self._report(stream, lost, last=last)

    def _report(self, stream: _Stream, lost: dict[Path, tuple[int, str]] | None = None, *, last: bool = False) -> None:
        count, because = (self._writer.lost if lost is None else lost).get(stream.log, (0, ""))
        now = time.monotonic()
        if count > stream.lost_reported and (last or now - stream.lost_reported_at >= _REPORT_EVERY_S):
            self._on_loss(stream.rank, stream.name, count - stream.lost_reported, because)
            stream.lost_reported, stream.lost_reported_at = count, now

    # -- streams --------------------------------------------------------------------------------------------

    def _of(self, rank: int) -> list[_Stream]:
        return [s for (r, _), s in self._streams.items() if r == rank and not s.rank_is_gone]

    def _all(self) -> set[_Stream]:
        return {s for s in self._streams.values() if s.reader >= 0} | self._lingering

    def _let_go(self, rank: int, name: str) -> None:
        stream = self._streams.get((rank, name))
        if stream is None or stream.rank_is_gone:
            return
        stream.rank_is_gone = True
        if stream.holder is not None:
            os.close(stream.holder)
            stream.holder = None
        self._lingering.add(stream)
        if not stream.registered and stream not in self._waiting:
            self._resting.discard(stream)
            self._register(stream)  # its end was seen, or it rests: look once more

    def _register(self, stream: _Stream) -> None:
        if not stream.registered and stream.reader >= 0:
            self._selector.register(stream.reader, selectors.EVENT_READ, stream)
            stream.registered = True

    def _unregister(self, stream: _Stream) -> None:
        if stream.registered:
            self._selector.unregister(stream.reader)
            stream.registered = False

    def _shut(self, stream: _Stream) -> None:
        if stream.reader < 0:
            return
        self._unregister(stream)
        for group in (self._lingering, self._waiting, self._resting):
            group.discard(stream)
        os.close(stream.reader)
        if stream.holder is not None:
            os.close(stream.holder)
        stream.reader, stream.holder = -1, None
        self._pipe_budget += stream.capacity if stream.capacity >= _PIPE_BYTES else 0
        self._past.append(stream)

    def _widen(self, reader: int) -> int:
        """A pipe of 1 MiB bridges our own delays; where our share is used up, or it is not allowed, 64 KiB do too."""
        if self._pipe_budget >= _PIPE_BYTES:
            with contextlib.suppress(OSError):
                fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        capacity = fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ)
        self._pipe_budget -= capacity if capacity >= _PIPE_BYTES else 0
        return capacity
