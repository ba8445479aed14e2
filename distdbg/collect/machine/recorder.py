"""Ask a rank for its flight recorders, without the GIL and without a pause.

`ask`: over the Unix socket that torch serves in a rank that distdbg has started. A process has a recorder of the older
ProcessGroupNCCL, one that gloo and others share, and in newer torch one for each backend of another name, as nccl2
(torch/csrc/distributed/c10d: NCCLUtils.cpp, FlightRecorder.cpp, hooks/FlightRecorderHook.cpp). All have the same form.
The server tells only the open operations of the last kind; torch writes all of them into a file when it is asked to.

`ask_by_pipe`: of other ranks, by the pipe of ProcessGroupNCCL. Where TORCH_NCCL_DEBUG_INFO_PIPE_FILE (in newer torch
TORCH_FR_DEBUG_INFO_PIPE_FILE) is set, torch makes the pipe `<value><rank>.pipe`. Whatever is written into it lets a
thread of torch's write the recorder's pickle to TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE, or a place of
its own, and the rank behind it (ProcessGroupNCCL.cpp, struct DumpPipe; FlightRecorder.cpp, DebugInfoWriter::getWriter).
For the first dump of a process that thread imports torch._inductor, which names the frames of compiled code: seconds of
CPU time and tens of MB read (torch/csrc/profiler/python/combined_traceback.cpp, py_symbolize). Later dumps take less
than a second.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.collect.machine.nccl_ras import uses_nccl
from distdbg.collect.machine.procfs import read_environment, started_at
from distdbg.model import fold_ranks

_MOST_BYTES = 64 << 20
_ENTRIES = b'"entries"'
_LONG_LIST = re.compile(rb'"ranks":"\[([0-9, ]{200,})\]"')
_PIPES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_NEXT_TIME = (
    f"the job was not started by distdbg; for next time set {_PIPES[1]}=/tmp/recorder_ in it, from torch 2.15 on with "
    "TORCH_DIST_USE_NCCL2=0, since the backend nccl2 makes no pipe"
)
#: The last byte of a pickle.
_STOP = b"."
_LOOK_EVERY_S = 0.02
#: For a file without stacks: milliseconds.
_WRITES_WITHIN_S = 1.0
#: In a rank's node folder, before its number: configs/preset-default.yaml sets it as TORCH_FR_DUMP_TEMP_FILE.
FILE_STEM = "recorder_"
#: For the first dump by a pipe: 5 to 8 s of three ranks on two busy cores, 1 to 2 s where cores are free.
PIPE_ANSWERS_WITHIN_S = 20.0


class RecorderFailed(Exception):
    """Says why there is no recorder's dump."""


#: Of ProcessGroupNCCL first; a build without CUDA has none of that name. Then the one that other backends share.
_OF_NCCL, _OF_BACKENDS = "dump_nccl_trace_json", "fr_trace_json"
#: The handler of a torch that has one recorder for each backend.
_WRITE_FILE = "fr_dump_file"
#: Backends of torch that have a recorder of their own there.
_BACKENDS = ("nccl2", "nccl-lazy")


@dataclass(frozen=True)
class Recorded:
    """One recorder's dump: `json`, with long lists of ranks as ranges, or a `pickle` as torch wrote it, unread."""

    form: str
    data: bytes


def ask(path: Path, rank: int, within_s: float) -> list[Recorded]:
    """Return the dumps of the recorders that have entries; if none has any, one that says so.

    Takes 10-30 ms; 2,000 entries are about 1 MB. `path` is the socket, in the rank's node folder. Raises
    RecorderFailed.
    """
    if not path.exists():
        raise RecorderFailed("this rank serves none: its process group is not made, or it has no worker side")
    until = time.monotonic() + within_s
    handlers = _handlers(path, within_s)
    answers, failed = [], "this torch serves none"
    for handler in (name for name in (_OF_NCCL, _OF_BACKENDS) if name in handlers):
        try:
            answers.append(_ask(path, handler, until - time.monotonic()))
        except RecorderFailed as error:  # noqa: PERF203 -- two of them
            failed = str(error)
    if not answers:
        raise RecorderFailed(failed)
    found = [Recorded("json", folded(answer)) for answer in answers if _ENTRIES in answer]
    for backend, told in _of_backends(path, handlers, until):
        whole = _written_file(path, rank, backend, until)
        if whole is None and _ENTRIES not in told:
            raise RecorderFailed(f"torch did not write the dump of {backend}'s recorder, and it has no open operation")
        found.append(Recorded("json", folded(told)) if whole is None else Recorded("pickle", whole))
    return found or [Recorded("json", folded(answers[0]))]


def files_of(found: list[Recorded], rank: int, look: int) -> dict[str, bytes]:
    """The files of a dump for what `ask` has returned: their names and contents."""
    return {
        f"recorder/{rank:05d}.{look}{f'.{part}' if part else ''}.{one.form}": one.data for part, one in enumerate(found)
    }


def _of_backends(path: Path, handlers: list[str], until: float) -> Iterator[tuple[str, bytes]]:
    """(backend, its open operations) for each that has a process group.

    A torch without the handler for files ignores the parameter, and would tell another backend's operations.
    """
    for backend in _BACKENDS if _WRITE_FILE in handlers else ():
        told = _ask(path, _OF_BACKENDS, until - time.monotonic(), f"backend={backend}")
        if _groups_of(told):
            yield backend, told


def _written_file(path: Path, rank: int, backend: str, until: float) -> bytes | None:
    """The dump of all entries; None where torch writes it elsewhere than into the rank's node folder, or not in time.

    The file is removed again: one that is there at the end was written by torch at a timeout.
    """
    file = path.with_name(f"{FILE_STEM}{rank}")
    before = _state(file)
    _ask(path, _WRITE_FILE, until - time.monotonic(), f"backend={backend}")
    data = _changed({file: before}, min(until, time.monotonic() + _WRITES_WITHIN_S))
    if data is not None and before is None:
        with contextlib.suppress(OSError):
            file.unlink()
    return data


def _groups_of(told: bytes) -> dict[str, Any]:
    """`pg_status` of an answer, by the number of the group. Raises RecorderFailed."""
    try:
        groups = json.loads(told)["pg_status"]
        if isinstance(groups, dict):
            return groups
    except (ValueError, KeyError):
        pass
    raise RecorderFailed("its answer is not of the form that torch writes")


def completed(path: Path, within_s: float) -> int:
    """How many operations the device has completed, in all process groups of NCCL. Raises RecorderFailed.

    Without the entries the answer is small. Source: ProcessGroupNCCL.cpp, its handlers' parameters. Newer backends tell
    the open ones as well.
    """
    until = time.monotonic() + within_s
    told = [_ask(path, _OF_NCCL, within_s, "includecollectives=false")]
    told += [answer for _, answer in _of_backends(path, _handlers(path, within_s), until)]
    try:
        return sum(int(group["last_completed_collective"]) for one in told for group in _groups_of(one).values())
    except (ValueError, TypeError, KeyError):
        raise RecorderFailed("it does not say how many collectives are completed") from None


def _handlers(path: Path, within_s: float) -> list[str]:
    """The names that the server answers to. Raises RecorderFailed."""
    try:
        names = json.loads(_request(path, "GET /handler/", within_s))
    except ValueError:
        raise RecorderFailed("its server does not name what it serves") from None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _ask(path: Path, handler: str, within_s: float, parameters: str = "") -> bytes:
    return _request(path, f"POST /handler/{handler}?{parameters}", within_s)


def _request(path: Path, line: str, within_s: float) -> bytes:
    if within_s <= 0:
        raise RecorderFailed("it does not answer in time")
    request = f"{line} HTTP/1.0\r\nHost: rank\r\nContent-Length: 0\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(within_s)
        try:
            sock.connect(str(path))
            sock.sendall(request)
            answer = _read(sock)
        except TimeoutError:
            raise RecorderFailed(f"it does not answer within {within_s:.1f} s") from None
        except OSError as error:
            raise RecorderFailed(error.strerror or str(error)) from None
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0]
    if b" 200" not in status:
        raise RecorderFailed(f"it answered {status.decode('latin-1')!r}")
    return body


def folded(data: bytes) -> bytes:
    """The same with long lists of a group's ranks as ranges: in a wide job they would outweigh all else together.

    Left as it is where the order of a list is not that of its numbers, for then it says something.
    """
    return _LONG_LIST.sub(_fold, data)


def _fold(found: re.Match[bytes]) -> bytes:
    ranks = [int(number) for number in found[1].split(b",") if number.strip()]
    if any(a >= b for a, b in itertools.pairwise(ranks)):
        return found[0]
    return b'"ranks":"[%s]"' % fold_ranks(ranks).encode()


def _read(sock: socket.socket) -> bytes:
    """Read the answer to its end, by Content-Length or until the server closes."""
    data = bytearray()
    while True:
        head, found, body = bytes(data).partition(b"\r\n\r\n") if len(data) < 8192 else (b"", b"", b"")
        if found:
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    return head + found + _rest(sock, body, int(value))
        piece = sock.recv(1 << 18)
        if not piece or len(data) > _MOST_BYTES:
            return bytes(data)
        data += piece


def _rest(sock: socket.socket, body: bytes, length: int) -> bytes:
    pieces, left = [body], min(length, _MOST_BYTES) - len(body)
    while left > 0 and (piece := sock.recv(min(left, 1 << 18))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def written_before(pid: int, rank: int) -> bytes | None:
    """What torch's watchdog has written at a timeout, into the files that the job's environment names.

    A file of torch's own place is not read: any job of the user's writes there, and the dump does not say which.
    """
    with contextlib.suppress(OSError):
        environment, began = read_environment(pid), started_at(pid)
        for prefix in (environment[name] for name in _FILES if environment.get(name)):
            file = _seen_from_here(pid, f"{prefix}{rank}")
            return _whole(file) if began is not None and file.stat().st_mtime > began else None
    return None


class NoPipe(RecorderFailed):
    """The job makes none. Says what to set for the next time; empty where it does not use NCCL, which alone has it."""


@dataclass(frozen=True)
class PipeAsked:
    """A dump that torch was asked for. It writes one of `files`, whose states before that are known."""

    pipe: str
    files: Mapping[Path, tuple[int, int, int] | None]

    def answer(self, within_s: float) -> bytes:
        """The recorder's pickle, unread. Raises RecorderFailed."""
        data = _changed(self.files, time.monotonic() + within_s)
        if data is None:
            raise RecorderFailed(f"nothing was written within {within_s:.1f} s after {self.pipe} was asked")
        return data


def ask_by_pipe(pid: int, rank: int) -> PipeAsked:
    """Returns at once: ranks that are asked together answer together. Raises RecorderFailed, NoPipe."""
    try:
        environment = read_environment(pid)
    except OSError as error:
        raise RecorderFailed(f"its environment cannot be read: {error.strerror}") from None
    stem = next((environment[name] for name in _PIPES if environment.get(name)), None)
    if stem is None:
        raise NoPipe(_NEXT_TIME if _uses_nccl(pid) else "")
    pipe = _seen_from_here(pid, f"{stem}{rank}.pipe")
    files = [_seen_from_here(pid, f"{prefix}{rank}") for prefix in _prefixes(environment)]
    asked = PipeAsked(pipe.name, {file: _state(file) for file in files})
    _write_into(pipe)
    return asked


def _uses_nccl(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return uses_nccl(pid)
    return False


def _prefixes(environment: Mapping[str, str]) -> Iterator[str]:
    """The prefixes of torch's dump files: the configured one, or else the defaults of its versions."""
    configured = next((environment[name] for name in _FILES if environment.get(name)), None)
    if configured is not None:
        yield configured
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


def _changed(files: Mapping[Path, tuple[int, int, int] | None], until: float) -> bytes | None:
    """The whole content of the first of `files` whose state is another one; None if there is none until then."""
    while True:
        for file, before in files.items():
            if _state(file) != before and (data := _whole(file)):
                return data
        if time.monotonic() >= until:
            return None
        time.sleep(_LOOK_EVERY_S)


def _write_into(pipe: Path) -> None:
    """Write only into a pipe that has a reader: a file of this name, or a pipe without one, does not belong to
    torch."""
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
