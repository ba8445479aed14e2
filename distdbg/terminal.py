"""Standard output and error of the command line: whatever is printed, a terminal obeys nothing but our own colours.

`guard()` is called once, before a command runs, so that no command, library or traceback can print a control sequence
that stands in a file name or in a rank's output. What moves the cursor on purpose (progress, `top`, the live view)
writes to `unguarded(stream)`, and cleans what it shows itself.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from typing import Any, TextIO

from distdbg.plain_text import guarded


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


def guard() -> None:
    """Twice is once. A stream that was closed before the start (`>&-`) becomes the null device."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        if not isinstance(stream, _Guarded):
            setattr(sys, name, _Guarded(stream))


class _Outlasting(io.FileIO):
    """A terminal until its window is closed, the null device from then on."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 -- whatever has bytes
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def outlive_terminal() -> None:
    """For a command that continues when its window is closed: what it prints from then on is lost, and no error. Not
    even when the interpreter ends, which would replace the exit code by 120."""
    for name in ("stdout", "stderr"):
        stream = unguarded(getattr(sys, name))
        if stream.isatty():
            stream.flush()
            raw = io.BufferedWriter(_Outlasting(stream.fileno(), "w", closefd=False))
            setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, stream.errors, line_buffering=True))
    guard()


def unguarded(stream: TextIO) -> TextIO:
    return stream._stream if isinstance(stream, _Guarded) else stream


def in_colour(stream: TextIO) -> bool:
    """On a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def columns() -> int:
    """How wide a text may be: as the terminal, and no wider than is read with ease."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)
