"""Find out which build of Python a process runs, from the files that it has mapped."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from pathlib import Path

#: The start of CPython's `_Py_DebugOffsets`, in every build from 3.13 on: a cookie, the version (PY_VERSION_HEX) and
#: `free_threaded`, 8 bytes each. It is initialised data, so the file has it. Source: pycore_debug_offsets.h.
_DEBUG_OFFSETS = re.compile(rb"xdebugpy[\s\S]{3}\x03\0{4}([\0\1])\0{7}")
_LIBPYTHON = re.compile(r" (/.*/libpython3[^/]*\.so[^/]*)$", re.MULTILINE)

#: By device, inode and time of change: the ranks of a job run the same file.
_answers: dict[tuple[int, int, int], bool] = {}


def is_free_threaded(pid: int) -> bool:
    """Whether the process runs a free-threaded build of Python. With PYTHON_GIL=1 too: its objects have another layout.

    False if the process is gone or may not be read.
    """
    return any(_has_free_threaded_runtime(file) for file in (f"/proc/{pid}/exe", *_libpython_files(pid)))


def _libpython_files(pid: int) -> set[str]:
    """In the file system of the process, which may be a container's."""
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        return {f"/proc/{pid}/root{path}" for path in _LIBPYTHON.findall(maps)}
    return set()


def _has_free_threaded_runtime(path: str) -> bool:
    with contextlib.suppress(OSError, ValueError), Path(path).open("rb") as file:  # ValueError: it is empty
        status = os.fstat(file.fileno())
        key = status.st_dev, status.st_ino, status.st_mtime_ns
        if key not in _answers:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                match = _DEBUG_OFFSETS.search(data)
                _answers[key] = match is not None and match[1] == b"\1"
        return _answers[key]
    return False
