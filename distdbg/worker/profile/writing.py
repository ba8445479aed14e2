"""A profile becomes a file for the agent: torch's own trace with our marks put in, packed.

Written in node-local memory under another name, then renamed. The profiler writes its trace unpacked; that is read
once, packed on the way, and removed.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    #: events for a trace of process `pid` whose times count from `base_ns`
    Events = Callable[[int, int], Iterable[dict[str, object]]]

_PIECE = 1 << 20
#: What a window needs there at least; the ranks' own shared memory is often the same.
_LEAST_FREE = 512 << 20
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')


def no_room(folder: str) -> str:
    """Why a profile should not even be begun; empty where there is room for one."""
    free = _free(folder)
    return "" if free >= _LEAST_FREE else f"{folder} has only {free >> 20} MiB left"


def pack(source: str, target: str, header: dict[str, object], events: Iterable[Events]) -> None:
    """Make `target` of the trace in `source`, which is removed. Raises OSError; ValueError for a trace that torch did
    not bring to its end, as on a full disk, where it says nothing."""
    import zlib
    from json import dumps

    temporary = f"{target}.tmp"
    try:
        with open(source, "rb") as whole, open(temporary, "wb") as file:
            array, base = _anatomy(whole.read(_PIECE), _end(source))
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            whole.seek(0)
            file.write(packer.compress(whole.read(array.start())))
            file.write(packer.compress(dumps(header).encode()[1:-1] + b",\n"))
            file.write(packer.compress(whole.read(len(array.group()))))
            for text in _put_in(events, base):
                file.write(packer.compress(text))
            while piece := whole.read(_PIECE):
                file.write(packer.compress(piece))
            file.write(packer.flush())
        os.replace(temporary, target)
    finally:
        for left in (source, temporary):
            if os.path.exists(left):
                os.unlink(left)


def _anatomy(head: bytes, tail: bytes) -> tuple[re.Match[bytes], int]:
    array, base = _ARRAY.search(head), _BASE.search(head) or _BASE.search(tail)
    if array is None or not tail.rstrip().endswith(b"}"):
        raise ValueError("torch did not bring its trace to the end: is the disk full?")
    return array, int(base.group(1)) if base else 0


def _put_in(events: Iterable[Events], base_ns: int) -> Iterator[bytes]:
    """They go first: torch's own follow, and there always are some."""
    from json import dumps

    for some in events:
        for event in some(os.getpid(), base_ns):
            yield dumps(event).encode() + b",\n"


def _end(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(-min(_PIECE, os.path.getsize(path)), os.SEEK_END)
        return file.read()


def _free(folder: str) -> int:
    """Bytes; Raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
