"""Reading files that others wrote: never more than asked for, never a FIFO or a device, never an exception."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from distdbg.evidence.tail import Tail

#: Newlines before a tail are counted up to here; beyond it a line number is not worth the wait.
_COUNT_UP_TO = 64 << 20


def read_whole(path: Path, most: int) -> tuple[str | None, str]:
    """(text or None, why None or cut). Missing is (None, ""): that is for the caller to judge."""
    data, size, why = _read(path, most, from_end=False)
    if data is None:
        return None, why
    cut = f"longer than {most >> 20} MiB: the rest was not read" if size > most else ""
    return data.decode("utf-8", "replace"), cut


def read_bytes(path: Path, most: int) -> tuple[bytes | None, str]:
    """As read_whole, not decoded."""
    data, _, why = _read(path, most, from_end=False)
    return data, why


def read_end(path: Path, most: int) -> Tail:
    """The last `most` bytes from a line's beginning, decoded with replacement; empty where there is no such file."""
    data, size, _ = _read(path, most, from_end=True)
    if data is None or size <= most:
        return Tail((data or b"").decode("utf-8", "replace"))
    cut = data.find(b"\n") + 1
    return Tail(data[cut:].decode("utf-8", "replace"), _lines_before(path, size - len(data) + cut))


def read_spread(path: Path, most: int, count: int) -> str | None:
    """Some `count` whole lines from all over a file of more than `most` bytes; None where it has no more than that."""
    size = _read(path, 0, from_end=False)[1]
    if size <= most:
        return None
    found = []
    try:
        with path.open("rb") as file:
            room = max(4096, 3 * len(file.readline(most)))  # a line somewhere is about as long as the first
            for part in range(count):
                file.seek(part * size // count)
                data = file.read(room)
                begin = 0 if part == 0 else data.find(b"\n") + 1
                end = data.find(b"\n", begin)
                if end > begin:
                    found.append(data[begin:end])
    except OSError:
        return None
    return b"\n".join(dict.fromkeys(found)).decode("utf-8", "replace")


def _read(path: Path, most: int, *, from_end: bool) -> tuple[bytes | None, int, str]:
    try:
        # A FIFO in a run directory would block the open for ever, but for O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, 0, ""
    except (OSError, ValueError) as error:
        return None, 0, getattr(error, "strerror", None) or str(error)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, 0, "not a regular file"
        start = max(0, status.st_size - most) if from_end else 0
        return os.pread(descriptor, most, start), status.st_size, ""
    except OSError as error:
        return None, 0, error.strerror or str(error)
    finally:
        os.close(descriptor)


def _lines_before(path: Path, offset: int) -> int:
    """1-based number of the line that begins at `offset`, 0 where it is too far to count."""
    if offset > _COUNT_UP_TO:
        return 0
    lines = 1
    try:
        with path.open("rb") as file:
            while offset > 0 and (block := file.read(min(1 << 20, offset))):
                lines += block.count(b"\n")
                offset -= len(block)
    except OSError:
        return 0
    return lines
