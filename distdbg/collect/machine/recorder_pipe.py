"""Ask a rank that distdbg did not start for its flight recorder, by the pipe of ProcessGroupNCCL.

Where TORCH_NCCL_DEBUG_INFO_PIPE_FILE (in newer torch TORCH_FR_DEBUG_INFO_PIPE_FILE) is set, torch makes the pipe
`<value><rank>.pipe`. Whatever is written into it lets a thread of torch's write the recorder's pickle, within a second,
without the GIL and without a pause: to TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or a place of its own,
and the rank behind it (ProcessGroupNCCL.cpp, struct DumpPipe; FlightRecorder.cpp, DebugInfoWriter::getWriter).
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from distdbg.collect.machine.process_look import environment
from distdbg.collect.machine.recorder import RecorderFailed

_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_MOST_BYTES = 64 << 20
#: The last byte of a pickle.
_STOP = b"."
_LOOK_EVERY_S = 0.02


class NoPipe(RecorderFailed):
    """The job makes none."""


def ask_by_pipe(pid: int, rank: int, within_s: float) -> bytes:
    """The recorder's pickle, which nobody has looked into. Raises RecorderFailed, NoPipe."""
    environment = _environment(pid)
    stem = next((environment[name] for name in _PIPES if environment.get(name)), None)
    if stem is None:
        raise NoPipe(f"the job was not started by distdbg, and has no {_PIPES[1]}")
    pipe = _seen_from_here(pid, f"{stem}{rank}.pipe")
    files = [_seen_from_here(pid, f"{prefix}{rank}") for prefix in _prefixes(environment)]
    before = {file: _state(file) for file in files}
    _write_into(pipe)
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
        for file in files:
            if _state(file) != before[file] and (data := _whole(file)):
                return data
    raise RecorderFailed(f"nothing was written within {within_s:g} s after {pipe.name} was asked")


def _environment(pid: int) -> Mapping[str, str]:
    try:
        return environment(pid)
    except OSError as error:
        raise RecorderFailed(f"its environment cannot be read: {error.strerror}") from None


def _prefixes(environment: Mapping[str, str]) -> Iterator[str]:
    """Where torch writes: as it is told, or else to a place of its own, by its age."""
    told = next((environment[name] for name in _FILES if environment.get(name)), None)
    if told is not None:
        yield told
        return
    home = environment.get("HOME") or "/tmp"
    for cache in (environment.get("XDG_CACHE_HOME"), f"{home}/.cache"):
        if cache:
            yield f"{cache}/torch/comm_lib_trace_rank_"
    yield "/tmp/nccl_trace_rank_"


def _seen_from_here(pid: int, path: str) -> Path:
    """The rank may live in a container, and name a file by its own folder."""
    return Path(f"/proc/{pid}/root{path}" if path.startswith("/") else f"/proc/{pid}/cwd/{path}")


def _state(file: Path) -> tuple[int, int, int] | None:
    with contextlib.suppress(OSError):
        found = file.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _write_into(pipe: Path) -> None:
    """Only into a pipe that somebody reads: a file of this name, or a writer that waits, is none of torch's."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RecorderFailed(f"{pipe.name} cannot be asked: {error.strerror}") from None
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise RecorderFailed(f"{pipe.name} is no pipe")
        os.write(descriptor, b"1\n")
    except OSError as error:
        raise RecorderFailed(f"{pipe.name} cannot be asked: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _whole(file: Path) -> bytes | None:
    """None while torch still writes."""
    with contextlib.suppress(OSError), file.open("rb") as opened:
        data = opened.read(_MOST_BYTES + 1)
        return data if data.endswith(_STOP) and len(data) <= _MOST_BYTES else None
    return None
