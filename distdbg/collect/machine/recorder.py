"""Ask a rank for its flight recorders, without the GIL and without a pause.

`ask`: over the Unix socket that torch serves in a rank that distdbg has started; `ask_by_port`: over the TCP port of
torch's debug server in another rank. A process has a recorder of the older ProcessGroupNCCL, one that gloo and others
share, and in newer torch one for each backend of another name, as nccl2 (torch/csrc/distributed/c10d: NCCLUtils.cpp,
FlightRecorder.cpp, hooks/FlightRecorderHook.cpp). All have the same form. The server tells only the open operations of
the last kind; torch writes all of them into a file when it is asked to.

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
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.collect.machine.nccl_ras import uses_nccl
from distdbg.collect.machine.procfs import read_environment, started_at
from distdbg.collect.machine.worker_server import RequestFailed, WorkerServer
from distdbg.evidence.ops import RECORDER_BACKENDS
from distdbg.model import fold_ranks
from distdbg.rundir import open_regular

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

#: Of ProcessGroupNCCL first; a build without CUDA has none of that name. Then the one that other backends share.
_OF_NCCL, _OF_BACKENDS = "dump_nccl_trace_json", "fr_trace_json"
#: The handler of a torch that has one recorder for each backend.
_WRITE_FILE = "fr_dump_file"


@dataclass(frozen=True)
class Recorded:
    """One recorder's dump: `json`, with long lists of ranks as ranges, or a `pickle` as torch wrote it, unread."""

    form: str
    data: bytes


def ask(path: Path, rank: int, within_s: float) -> list[Recorded]:
    """Return the dumps of the recorders that have entries; if none has any, one that says so.

    Takes 10-30 ms; 2,000 entries are about 1 MB. `path` is the socket, in the rank's node folder. Raises
    RequestFailed.
    """
    if not path.exists():
        raise RequestFailed("this rank serves none: its process group is not made, or it has no worker side")
    file = path.with_name(f"{FILE_STEM}{rank}")
    is_new = not file.exists()
    dumps = _ask_recorders(WorkerServer(str(path)), [file], within_s)
    if is_new and any(dump.form == "pickle" for dump in dumps):  # one that stays was written by torch at a timeout
        with contextlib.suppress(OSError):
            file.unlink()
    return dumps


def ask_by_port(server: WorkerServer, pid: int, rank: int, within_s: float) -> list[Recorded]:
    """The same of a rank that distdbg has not started, whose script runs torch's debug server. Raises RequestFailed."""
    try:
        environment = read_environment(pid)
    except OSError as error:
        raise RequestFailed(f"its environment cannot be read: {error.strerror}") from None
    return _ask_recorders(server, _dump_files(pid, rank, environment), within_s)


def _ask_recorders(server: WorkerServer, files: list[Path], within_s: float) -> list[Recorded]:
    """`files`: where torch may write a dump that it is asked to write."""
    until = time.monotonic() + within_s
    handlers = server.handlers(within_s)
    answers, failed = [], "this torch serves none"
    for handler in (name for name in (_OF_NCCL, _OF_BACKENDS) if name in handlers):
        try:
            answers.append(server.ask(handler, until - time.monotonic()))
        except RequestFailed as error:  # noqa: PERF203 -- two of them
            failed = str(error)
    if not answers:
        raise RequestFailed(failed)
    found = [Recorded("json", folded(answer)) for answer in answers if _ENTRIES in answer]
    for backend, told in _of_backends(server, handlers, until):
        whole = _written_file(server, files, backend, until)
        if whole is None and _ENTRIES not in told:
            raise RequestFailed(f"torch did not write the dump of {backend}'s recorder, and it has no open operation")
        found.append(Recorded("json", folded(told)) if whole is None else Recorded("pickle", whole))
    return found or [Recorded("json", folded(answers[0]))]


def files_of(found: list[Recorded], rank: int, look: int) -> dict[str, bytes]:
    """The files of a dump for what `ask` has returned: their names and contents."""
    return {
        f"recorder/{rank:05d}.{look}{f'.{part}' if part else ''}.{one.form}": one.data for part, one in enumerate(found)
    }


def _of_backends(server: WorkerServer, handlers: list[str], until: float) -> Iterator[tuple[str, bytes]]:
    """(backend, its open operations) for each that has a process group.

    A torch without the handler for files ignores the parameter, and would tell another backend's operations.
    """
    for backend in RECORDER_BACKENDS if _WRITE_FILE in handlers else ():
        told = server.ask(_OF_BACKENDS, until - time.monotonic(), f"backend={backend}")
        if _groups_of(told):
            yield backend, told


def _written_file(server: WorkerServer, files: list[Path], backend: str, until: float) -> bytes | None:
    """The dump of all entries; None if torch writes it elsewhere than into one of `files`, or not in time."""
    before = {file: _state(file) for file in files}
    server.ask(_WRITE_FILE, until - time.monotonic(), f"backend={backend}")
    return _changed(before, min(until, time.monotonic() + _WRITES_WITHIN_S))


def _groups_of(told: bytes) -> dict[str, Any]:
    """`pg_status` of an answer, by the number of the group. Raises RequestFailed."""
    try:
        groups = json.loads(told)["pg_status"]
        if isinstance(groups, dict):
            return groups
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise RequestFailed("its answer is not of the form that torch writes")


def completed(path: Path, within_s: float) -> int:
    """How many operations the device has completed, in all process groups of NCCL. Raises RequestFailed.

    Without the entries the answer is small. Source: ProcessGroupNCCL.cpp, its handlers' parameters. Newer backends tell
    the open ones as well.
    """
    until = time.monotonic() + within_s
    server = WorkerServer(str(path))
    told = [server.ask(_OF_NCCL, within_s, "includecollectives=false")]
    told += [answer for _, answer in _of_backends(server, server.handlers(within_s), until)]
    try:
        return sum(int(group["last_completed_collective"]) for one in told for group in _groups_of(one).values())
    except (ValueError, TypeError, KeyError):
        raise RequestFailed("it does not say how many collectives are completed") from None


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


class NoPipe(RequestFailed):
    """The job makes none. Says what to set for the next time; empty where it does not use NCCL, which alone has it."""


@dataclass(frozen=True)
class PipeAsked:
    """A dump that torch was asked for. It writes one of `files`, whose states before that are known."""

    pipe: str
    files: Mapping[Path, tuple[int, int, int] | None]

    def answer(self, within_s: float) -> bytes:
        """The recorder's pickle, unread. Raises RequestFailed."""
        data = _changed(self.files, time.monotonic() + within_s)
        if data is None:
            raise RequestFailed(f"nothing was written within {within_s:.1f} s after {self.pipe} was asked")
        return data


def ask_by_pipe(pid: int, rank: int) -> PipeAsked:
    """Returns at once: ranks that are asked together answer together. Raises RequestFailed, NoPipe."""
    try:
        environment = read_environment(pid)
    except OSError as error:
        raise RequestFailed(f"its environment cannot be read: {error.strerror}") from None
    stem = next((environment[name] for name in _PIPES if environment.get(name)), None)
    if stem is None:
        raise NoPipe(_NEXT_TIME if _uses_nccl(pid) else "")
    pipe = _seen_from_here(pid, f"{stem}{rank}.pipe")
    asked = PipeAsked(pipe.name, {file: _state(file) for file in _dump_files(pid, rank, environment)})
    _write_into(pipe)
    return asked


def _uses_nccl(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return uses_nccl(pid)
    return False


def _dump_files(pid: int, rank: int, environment: Mapping[str, str]) -> list[Path]:
    return [_seen_from_here(pid, f"{prefix}{rank}") for prefix in _prefixes(environment)]


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
        raise RequestFailed(f"{pipe.name} cannot be asked: {error.strerror}") from None
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise RequestFailed(f"{pipe.name} is no pipe")
        os.write(descriptor, b"1\n")
    except OSError as error:
        raise RequestFailed(f"{pipe.name} cannot be asked: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _whole(file: Path) -> bytes | None:
    """None while torch still writes."""
    with contextlib.suppress(OSError), open_regular(file) as opened:
        data = opened.read(_MOST_BYTES + 1)
        return data if data.endswith(_STOP) and len(data) <= _MOST_BYTES else None
    return None
