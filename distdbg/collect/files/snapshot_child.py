"""The process that reads foreign memory snapshots: they are pickles, and whoever wrote them may mean harm.

    python <absolute>/distdbg/collect/snapshot_child.py PATH [HOLDERS]     the answer on standard output

An answer is one line {"devices": [evidence/memory/answer.py's, …]}, or {"because": why there is none}. It can build
plain containers only and import nothing; the kernel limits its memory and CPU time (child_limits.py), and it writes
no file. The analysis is made here, too, so that what was read never crosses.

Standard library only.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import gc
import io
import json
import os
import stat
import zlib

from distdbg.collect.files import child_limits, plain_pickle
from distdbg.collect.files.plain_pickle import PlainUnpickler, UnreadablePickle
from distdbg.evidence.memory.analysis import analyse
from distdbg.evidence.memory.answer import as_plain
from distdbg.evidence.memory.levels import MOST_HOLDERS
from distdbg.evidence.memory.trace import NotASnapshot

_GZIP = b"\x1f\x8b"
#: A packed snapshot is a tenth to a hundredth of its length; what grows more than this is a bomb.
_MOST_GROWTH = 250
#: Bytes of a snapshot, unpacked. A snapshot of 5 million events has half of it.
_MOST_BYTES = 2 << 30


class SnapshotUnpickler(PlainUnpickler):
    writer = "memory snapshot"


class Content:
    """How many bytes of the file's content are known, and the memory that this process may take for them."""

    def __init__(self, limit: child_limits.MemoryLimit) -> None:
        self._limit, self._before, self._length = limit, child_limits.own_bytes(), 0
        self.add(0)

    def add(self, length: int) -> None:
        self._length += length
        child_limits.limit_memory_of_file(self._limit, self._length, self._before)

    @property
    def exceeded(self) -> str:
        return self._limit.exceeded(self._length)


class _Unpacked(io.RawIOBase):
    """A gzip file's content. Ends at what no snapshot's compression reaches."""

    def __init__(self, descriptor: int, size: int, content: Content) -> None:
        self._descriptor, self._left = descriptor, min(_MOST_BYTES, _MOST_GROWTH * size)
        self._content = content
        self._by_ratio = _MOST_GROWTH * size < _MOST_BYTES
        self._unpack = zlib.decompressobj(31)
        self._packed = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        while not self._unpack.eof:
            self._packed = self._packed or os.read(self._descriptor, 1 << 17)
            if not self._packed:
                raise UnreadablePickle("it is cut short (gzip)")
            try:
                data = self._unpack.decompress(self._packed, len(into))
            except zlib.error:
                raise UnreadablePickle("it is no whole gzip file: its content is damaged") from None
            self._packed = self._unpack.unconsumed_tail
            if data:
                self._left -= len(data)
                if self._left < 0:
                    most = f"{_MOST_GROWTH} times its length" if self._by_ratio else f"{_MOST_BYTES >> 30} GiB"
                    raise UnreadablePickle(f"it unpacks to more than {most}: no snapshot does")
                self._content.add(len(data))
                into[: len(data)] = data
                return len(data)
        return 0


def read(path: str, holders: int, content: Content) -> list[dict[str, object]]:
    """Raises UnreadablePickle, MemoryError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise UnreadablePickle(getattr(error, "strerror", None) or "its name is none") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadablePickle("it is not a regular file")
    if not status.st_size:
        raise UnreadablePickle("it is empty: torch's recorder of C++ stacks leaves such files when it fails")
    packed = os.pread(descriptor, 2, 0) == _GZIP
    if status.st_size > _MOST_BYTES:
        raise UnreadablePickle(f"it has {status.st_size >> 20} MiB, and no more than {_MOST_BYTES >> 20} MiB are read")
    if not packed:
        content.add(status.st_size)
    raw = _Unpacked(descriptor, status.st_size, content) if packed else io.FileIO(descriptor)
    try:
        snapshot = plain_pickle.load(io.BufferedReader(raw, 1 << 20), SnapshotUnpickler)
        return [as_plain(answer) for answer in analyse(snapshot, holders)]
    except NotASnapshot as error:
        raise UnreadablePickle(str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise UnreadablePickle("its events make no sense together") from None


def main() -> int:
    content = Content(child_limits.limit_memory())
    child_limits.limit_cpu()
    gc.disable()  # it looks for circles while a million dicts are built: two thirds of the time
    try:
        answer = json.dumps({"devices": read(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else MOST_HOLDERS, content)})
    except UnreadablePickle as error:
        answer = json.dumps({"because": str(error)})
    except MemoryError:
        answer = json.dumps({"because": content.exceeded})
    sys.stdout.write(answer + "\n")
    sys.stdout.flush()
    os._exit(0)  # giving a million objects back one by one takes longer than reading them did


if __name__ == "__main__":
    sys.exit(main())
