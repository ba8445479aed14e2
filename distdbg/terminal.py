"""Standard output and error of the command line: whatever is printed, a terminal obeys nothing but our own colours.

`guard()` is called once, before a command runs, so that no command, library or traceback can print a control sequence
that stands in a file name or in a rank's output. What moves the cursor on purpose (progress, `top`, the live view)
writes to `unguarded(stream)`, and cleans what it shows itself.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import select
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

from distdbg.plain_text import guarded

#: Seconds in which the reader of a command that has ended may take what is queued for it.
LAST_WORDS_S = 2.0


class _Guarded:
    """A text stream that is another one in all but `write`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(guarded(text, colours=self._stream.isatty()))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)

    def __iter__(self) -> Any:  # noqa: ANN401
        return iter(self._stream)


class _ClosedInput(io.RawIOBase):
    """Standard input that was closed before the start (`<&-`): reading it is an error, not its end."""

    def readable(self) -> bool:
        return True

    def readinto(self, _buffer: Any, /) -> int:  # noqa: ANN401 -- whatever takes bytes
        raise OSError(errno.EBADF, "standard input is closed")


def guard() -> None:
    """Twice is once. A stream that was closed before the start (`>&-`) becomes the null device, for children, too."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # as descriptor 0, which the next file that is opened would become
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedInput()))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        if not isinstance(stream, _Guarded):
            setattr(sys, name, _Guarded(stream))


class _QueuedOutput(io.RawIOBase):
    """Write to a descriptor in a thread: a reader that does not read, or has gone, never delays the caller.

    What is printed after the reader has gone is lost.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = self._target = descriptor
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._thread: threading.Thread | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:  # noqa: ANN401 -- whatever has bytes
        piece = bytes(data)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="output", daemon=True)
                self._thread.start()
            self._pieces.append(piece)
            self._changed.notify_all()
        return len(piece)

    def wait(self, seconds: float) -> bool:
        """Wait until all is written; False if the reader has not taken it in this time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pieces, seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pieces)
            try:
                write_all(self._target, self._pieces[0])
            except OSError:
                self._target = os.open(os.devnull, os.O_WRONLY)
            with self._changed:
                self._pieces.popleft()
                self._changed.notify_all()


def write_all(descriptor: int, data: bytes, go_on: Callable[[], bool] = lambda: True) -> None:
    """Write all of it, however slowly, while `go_on`, which is asked before each part, returns True. Raises OSError."""
    view = memoryview(data)
    while view and go_on():
        try:
            view = view[os.write(descriptor, view[:4096]) :]  # a stopped terminal takes little at a time
        except BlockingIOError:  # noqa: PERF203 -- another process made the descriptor non-blocking, and it is full
            select.select([], [descriptor], [], 0.1)


def outlive_terminal() -> None:
    """For a command that continues when the reader of its output stops reading, or goes: what it prints is queued,
    and from then on lost. At its end the interpreter waits for a reader for LAST_WORDS_S."""
    for name in ("stdout", "stderr"):
        stream = unguarded(getattr(sys, name))
        if (name == "stderr" or stream.isatty()) and _queue_of(stream) is None:
            stream.flush()
            queue = _QueuedOutput(stream.fileno())
            atexit.register(queue.wait, LAST_WORDS_S)
            wrapped = io.TextIOWrapper(io.BufferedWriter(queue), stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, wrapped)
    guard()


def is_behind(stream: TextIO, within_s: float = 0.0) -> bool:
    """Whether what was printed to a stream of `outlive_terminal` is still not read after `within_s`."""
    queue = _queue_of(stream)
    return queue is not None and not queue.wait(within_s)


def _queue_of(stream: TextIO) -> _QueuedOutput | None:
    raw = getattr(getattr(unguarded(stream), "buffer", None), "raw", None)
    return raw if isinstance(raw, _QueuedOutput) else None


def unguarded(stream: TextIO) -> TextIO:
    return stream._stream if isinstance(stream, _Guarded) else stream


def in_colour(stream: TextIO) -> bool:
    """On a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def columns() -> int:
    """How wide a text may be: as the terminal, and no wider than is read with ease."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)
