"""Write a profile for the agent: torch's own trace with our events added, compressed.

Written in node-local memory under a temporary name, then renamed. The profiler writes its trace uncompressed, there or,
where that is too small, in the temporary directory; that file is read once, compressed, and removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator

from distdbg.whole_file import WholeFile
from distdbg.worker.agent_files import free_bytes, no_room

#: events for a trace of process `pid` whose times count from `base_ns`
Events = Callable[[int, int], Iterable[dict[str, object]]]

_PIECE = 1 << 20
#: An event of torch's trace has 440 bytes on a CPU; kernels, with their arrows, have more. Packed it is a tenth.
_EVENT, _PACKED = 1 << 10, 4
#: Events of a window of a few steps; the real number is checked once its events are counted.
_LEAST_EVENTS = 16 << 10
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')


def place(folder: str, events: int = _LEAST_EVENTS) -> tuple[str, str]:
    """The folder for a trace of so many events, to be compressed into `folder`; or no folder, and the reason."""
    from tempfile import gettempdir

    whole = events * _EVENT
    packed, other = whole // _PACKED, gettempdir()
    because = no_room(folder, whole + packed)
    if not because:
        return folder, ""
    return ("", because) if no_room(folder, packed) or no_room(other, whole + packed) else (other, "")


def pack(source: str, target: str, header: dict[str, object], events: Iterable[Events]) -> None:
    """Make `target` of the trace in `source`, which is removed. Raises OSError; ValueError for a trace that torch did
    not complete, as on a full disk, where it reports no error."""
    import zlib
    from json import dumps

    try:
        with open(source, "rb") as whole, WholeFile(target) as file:
            array, base = _anatomy(whole.read(_PIECE), _end(source))
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            whole.seek(0)
            file.write(packer.compress(whole.read(array.start())))
            file.write(packer.compress(dumps(header).encode()[1:-1] + b",\n"))
            file.write(packer.compress(whole.read(len(array.group()))))
            for text in _put_in(events, base):
                file.write(packer.compress(text))
            while piece := whole.read(_PIECE):
                if free_bytes(os.path.dirname(target)) < 0:
                    raise OSError(f"{os.path.dirname(target)} has no room left for it")
                file.write(packer.compress(piece))
            file.write(packer.flush())
    finally:
        if os.path.exists(source):
            os.unlink(source)


def _anatomy(head: bytes, tail: bytes) -> tuple[re.Match[bytes], int]:
    array, base = _ARRAY.search(head), _BASE.search(head) or _BASE.search(tail)
    if array is None or not tail.rstrip().endswith(b"}"):
        raise ValueError("torch did not complete its trace: is the disk full?")
    return array, int(base.group(1)) if base else 0


def _put_in(events: Iterable[Events], base_ns: int) -> Iterator[bytes]:
    """They are first: at least one event of torch follows."""
    from json import dumps

    for some in events:
        for event in some(os.getpid(), base_ns):
            yield dumps(event).encode() + b",\n"


def _end(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(-min(_PIECE, os.path.getsize(path)), os.SEEK_END)
        return file.read()
