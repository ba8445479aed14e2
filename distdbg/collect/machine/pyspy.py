"""Collect Python stacks of a running process with py-spy, also of one that holds the GIL or is stopped.

Plain: 10-20 ms, the target paused for about 12 ms. Without a pause (`--nonblocking`) where it cannot be stopped, or
is stopped already. With `native` C frames too: about 1 s of CPU, the target paused for most of it.

`probe` tests once, without stopping a rank, whether py-spy can sample it here: py-spy needs what ptrace needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.collect.machine.kept_source import read_kept_source
from distdbg.evidence.frames import Activity, activity_of, is_user
from distdbg.evidence.stacks.store_calls import waiting_call
from distdbg.plain_text import first_words
from distdbg.protocol.dump import NoStacks

#: Of an environment whose lib/python3.x/site-packages this file lies in.
_INSTALLED = Path(os.path.normpath(Path(__file__).resolve().parents[2] / "../../../../bin/py-spy"))
#: Who is at the other side of a send or recv, and who makes a process group.
_SAY_WHO = {"src", "dst", "group_src", "group_dst", "global_ranks_in_group", "split_from"}
#: By what the frame is busy with; of a group that is formed its size and where its ranks meet, of a lock file its path,
#: of an extension its name and folder.
_KEPT = {
    Activity.COLLECTIVE: _SAY_WHO,
    Activity.GROUP_SETUP: _SAY_WHO | {"hostname", "port", "group_size"},
    Activity.PICKLING: _SAY_WHO,
    Activity.EXTENSION: {"name", "build_directory"},
    Activity.LOCK_FILE: {"lock_filename", "canonical_path"},
}
_NOT_EXECUTABLE = "is not an executable file"
#: py-spy 0.4.3 does not know the layout of these builds' objects (benfred/py-spy#711, open).
_FREE_THREADED = "the process runs free-threaded Python, whose stacks py-spy cannot read"
#: How py-spy reports EPERM and EACCES: in its own words, or in Rust's.
_REFUSED = re.compile("permission denied|operation not permitted", re.IGNORECASE)
_CAP_SYS_PTRACE = 19
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class PySpyFailed(Exception):
    """Says why there are no stacks. `kind` is None for what may work at the next try."""

    def __init__(self, because: str, kind: NoStacks | None = None) -> None:
        super().__init__(because)
        self.kind = kind


def find_pyspy() -> str | None:
    """The py-spy beside this interpreter first: its version was installed with distdbg. In an image the interpreter has
    none beside it, and ours is mounted at its own path. A file that cannot be executed is passed over."""
    return next((path for path in _own_paths() if shutil.which(path)), None) or shutil.which("py-spy")


def _own_paths() -> tuple[str, str]:
    return str(Path(sys.executable).with_name("py-spy")), str(_INSTALLED)


def why_no_pyspy() -> str:
    """Why `find_pyspy` gives None."""
    unusable = next((path for path in _own_paths() if Path(path).exists()), None)
    return f"{unusable} {_NOT_EXECUTABLE}" if unusable else "py-spy is not installed"


def stacks(pid: int, *, within_s: float, native: bool = False, values: bool = False) -> list[dict[str, Any]]:
    """py-spy's own JSON: one object a thread, innermost frame first. Raises PySpyFailed.

    Its `--subprocesses` adds nothing to JSON (py-spy 0.4.3): children are asked one by one. Of the variables
    only those that say for which ranks torch waits, for which lock file, or for which key of a store are kept, unless
    `values` asks for all.
    """
    tool = find_pyspy()
    if tool is None:
        raise PySpyFailed(why_no_pyspy(), NoStacks.NO_TOOL)
    if is_free_threaded(pid):
        raise PySpyFailed(_FREE_THREADED, NoStacks.FREE_THREADED)
    command = [tool, "dump", "--json", "--pid", str(pid), "--locals"]
    if native:
        return _run([*command, "--native"], within_s, values)
    try:
        return _run(command, within_s, values)
    except PySpyFailed as first:
        try:
            return _run([*command, "--nonblocking"], within_s, values)
        except PySpyFailed as second:
            same = str(first) == str(second)
            because = str(first) if same else f"{first}; without stopping it: {second}"
            raise PySpyFailed(because, first.kind or second.kind) from None


def _run(command: list[str], within_s: float, values: bool) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=within_s, check=False, stdin=subprocess.DEVNULL,
            env=os.environ | {"RUST_BACKTRACE": "0"},  # its own stack is no cause
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PySpyFailed(f"py-spy did not answer within {within_s:g} s") from None
    except OSError as error:
        raise PySpyFailed(f"{command[0]} {_NOT_EXECUTABLE}: {error.strerror}", NoStacks.NO_TOOL) from None
    if done.returncode:
        raise _failure(done.stderr.decode("utf-8", "replace").strip(), done.returncode)
    try:
        threads = json.loads(done.stdout)
    except ValueError:
        raise PySpyFailed("py-spy printed no JSON") from None
    if not isinstance(threads, list):
        raise PySpyFailed("py-spy printed something else than a list of threads")
    if not values:
        for thread in threads:
            frames = thread.get("frames") or []
            names = _names_of_key(frames[0]) if frames else frozenset()
            for frame in frames:
                own = names if frame is frames[0] else ()
                frame["locals"] = [v for v in frame.get("locals") or () if v.get("name") in own or _is_kept(v, frame)]
    return threads


def _names_of_key(frame: dict[str, Any]) -> frozenset[str]:
    """The variables that say for which key of a store a line waits, where it waits for one."""
    file, line = str(frame.get("filename")), frame.get("line")
    if not isinstance(line, int) or not file.startswith("/") or not is_user(file):
        return frozenset()
    call = waiting_call(_source(file), line)
    return call.names if call is not None else frozenset()


@lru_cache(maxsize=64)
def _source(file: str) -> str:
    """Empty where it cannot be read."""
    with contextlib.suppress(OSError):
        kept = read_kept_source(file)
        return kept[1].decode("utf-8", "replace") if kept is not None else ""
    return ""


def _is_kept(variable: dict[str, Any], frame: dict[str, Any]) -> bool:
    activity = activity_of(str(frame.get("filename")), str(frame.get("name")))
    return variable.get("name") in _KEPT.get(activity, ())


def _failure(stderr: str, exit_code: int) -> PySpyFailed:
    """The first cause that py-spy names; its advice is for another reader."""
    if "Failed to find python version" in stderr:
        return PySpyFailed("py-spy finds no Python in this process", NoStacks.NO_PYTHON)
    noise = ("Error: Failed to", "Caused by:", "Reason: Error: Failed")
    lines = [line.strip() for line in stderr.splitlines()]
    messages = [line for line in lines if line and not line.startswith(noise)] or lines[:1]
    because = first_words(messages[0], 200) if messages else f"py-spy ended with exit code {exit_code}"
    return PySpyFailed(because, NoStacks.REFUSED if _REFUSED.search(stderr) else None)


class _MemoryPiece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def probe(pid: int) -> dict[str, Any]:
    """`because` is empty where all works; it can be shown to a person."""
    refused = _refusal(pid)
    found = {"pyspy": find_pyspy() is not None, "ptrace": not refused, "because": ""}
    if refused:
        scope = None
        with contextlib.suppress(OSError, ValueError):
            scope = int(_YAMA.read_text())
        capabilities = int(procfs.status_value("self", "CapEff") or "0", 16)
        uids = procfs.status_value(pid, "Uid").split()
        same_user = not uids or uids[0] == str(os.getuid())
        found["because"] = why_refused(refused, scope, capabilities, same_user=same_user)
    elif not found["pyspy"]:
        found["because"] = why_no_pyspy()
    elif is_free_threaded(pid):
        found["because"] = _FREE_THREADED
    return found


def why_not_paused(pid: int) -> str:
    """Why py-spy may not stop a process to read its native frames, with the remedy; empty if nothing forbids it."""
    tracer = procfs.status_value(pid, "TracerPid")
    if tracer not in ("", "0"):
        name = procfs.status_value(tracer, "Name") or "of another container"
        return f"process {tracer} ({name}) traces it, and only one process may: end that one, or detach it"
    return str(probe(pid)["because"])


def _refusal(pid: int) -> int:
    """The kernel's errno, 0 where it would let us."""
    try:
        read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return 0  # not to be known here
    here = (ctypes.c_char * 1)()
    ours = _MemoryPiece(ctypes.cast(here, ctypes.c_void_p), 1)
    theirs = _MemoryPiece(ctypes.c_void_p(8), 1)  # in the first page, where nothing is ever mapped
    if read(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) >= 0:
        return 0
    number = ctypes.get_errno()
    return number if number in (errno.EPERM, errno.EACCES, errno.ENOSYS) else 0


def why_refused(number: int, scope: int | None, capabilities: int, *, same_user: bool) -> str:
    """The reason of a refusal, the one that the user can change most easily first."""
    reasons = (
        (number == errno.ENOSYS, "this kernel, or the container's seccomp profile, has no process_vm_readv"),
        (not same_user, "the ranks belong to another user"),
        (scope == 3, "Yama forbids ptrace to everybody (kernel.yama.ptrace_scope is 3, until the next boot)"),
        (
            bool(capabilities >> _CAP_SYS_PTRACE & 1),
            "the container's seccomp or AppArmor profile forbids ptrace: run it with --cap-add SYS_PTRACE",
        ),
        (scope == 2, "Yama lets only CAP_SYS_PTRACE trace (kernel.yama.ptrace_scope is 2)"),
        (
            scope == 1,
            "Yama lets a process trace its children alone (kernel.yama.ptrace_scope is 1), and these ranks have not "
            "allowed it: they run without distdbg's worker side",
        ),
        (
            True,
            "the ranks are not dumpable (PR_SET_DUMPABLE, a set-uid interpreter), or the container lacks SYS_PTRACE",
        ),
    )
    return next(words for applies, words in reasons if applies)


#: The start of CPython's `_Py_DebugOffsets`, in every build from 3.13 on: a cookie, the version (PY_VERSION_HEX) and
#: `free_threaded`, 8 bytes each. It is initialised data, so the file has it. Source: pycore_debug_offsets.h.
_DEBUG_OFFSETS = re.compile(rb"xdebugpy[\s\S]{3}\x03\0{4}([\0\1])\0{7}")
_LIBPYTHON = re.compile(r" (/.*/libpython3[^/]*\.so[^/]*)$", re.MULTILINE)

#: By device, inode and time of change: the ranks of a job run the same file.
_free_threaded_files: dict[tuple[int, int, int], bool] = {}


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
        if key not in _free_threaded_files:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                match = _DEBUG_OFFSETS.search(data)
                _free_threaded_files[key] = match is not None and match[1] == b"\1"
        return _free_threaded_files[key]
    return False
