"""Read what gdb prints for `bt`, `thread apply all bt` and `py-bt` into the form of py-spy's JSON.

Thread 2 (Thread 0x7f3c2b7fe700 (LWP 4243) "python"):
#0  0x00007f3d2e8a0a35 in pthread_cond_wait () from /lib64/libpthread.so.0
#1  Frame 0x55d0, for file train.py, line 88, in step (self=<Trainer at remote 0x7f>)
Traceback (most recent call first):
  File "train.py", line 88, in step

A process is named by `Attaching to process 4242`, by `process 4242`, or by its thread 1, whose LWP is the pid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from distdbg.evidence.stacks.threads import MOST_FRAMES

_PROCESS = re.compile(r"^(?:Attaching to (?:process|program: \S+, process)|process) (\d{1,9})\b")
_THREAD = re.compile(
    r"^(?:\[Switching to thread |Thread )(?P<number>\d{1,7}) \((?:Thread 0x[0-9a-f]{1,16} \()?LWP (?P<lwp>\d{1,9})\)?"
    r'(?: "(?P<name>[^"]{0,100})")?'
)
_FRAME = re.compile(
    r"^#(?P<depth>\d{1,6}) +(?:0x[0-9a-f]{1,16} in )?(?P<function>\S.{0,2000}?) \((?P<arguments>.*)\)"
    r"(?: from (?P<library>\S.*)| at (?P<file>\S.*?):(?P<line>\d{1,9}))?$"
)
_PYTHON = re.compile(
    r"\bFrame 0x[0-9a-f]{1,16}, for file (?P<file>.{1,1000}?), line (?P<line>\d{1,9}), in (?P<function>\S{1,300})"
)
_BY_PY_BT = re.compile(r'^  File "(?P<file>.{1,1000}?)", line (?P<line>\d{1,9}), in (?P<function>\S{1,300})')
_SAYS = ("bt", "py-bt", "[New LWP")
_FIRST = "Traceback (most recent call first):"
_LONGEST = 8_000


def is_gdb_text(text: str) -> bool:
    """A frame `#0` below a thread or a command of gdb's or at the beginning of the text, or what py-bt prints."""
    lines = [line.removeprefix("(gdb) ") for line in text.split("\n")]
    first = next(filter(str.strip, lines), "")
    named = first.startswith("#0 ") or any(
        _THREAD.match(line) or _PROCESS.match(line) or line.startswith(_SAYS) for line in lines
    )
    return _FIRST in lines or (named and any(line.startswith("#0 ") and _frame(line) for line in lines))


def read_gdb_text(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One object a thread; those of one process have its pid, which its thread 1 or a line of gdb's says."""
    process: list[dict[str, Any]] = []
    pid = 0
    for kind, value in _parts(lines):
        if kind == "process":
            yield from _of(pid, process)
            process, pid = [], int(value)
        elif kind == "thread":
            if process and process[-1]["number"] == 1 and value.pop("listed"):  # gdb lists thread 1 last
                yield from _of(pid, process)
                process, pid = [], 0
            process.append(value)
        else:
            if not process:
                process.append(_thread(1, pid, ""))
            if len(process[-1]["frames"]) < MOST_FRAMES:
                process[-1]["frames"].append(value)
    yield from _of(pid, process)


def _of(pid: int, threads: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The main thread of a process is its thread 1."""
    main = next((thread["os_thread_id"] for thread in threads if thread["number"] == 1), 0)
    for thread in threads:
        name = "MainThread" if thread["number"] == 1 else thread["thread_name"]
        if thread["frames"]:
            yield thread | {"pid": pid or main, "thread_name": name}


def _parts(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for line in _joined(lines):
        if found := _PROCESS.match(line):
            yield "process", found[1]
        elif found := _THREAD.match(line):
            thread = _thread(int(found["number"]), int(found["lwp"]), found["name"] or "")
            yield "thread", thread | {"listed": line.startswith("Thread")}
        elif (frame := _frame(line)) is not None:
            yield "frame", frame


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """gdb folds long frames: what follows is indented, but for the frames of py-bt."""
    held = ""
    for raw in lines:
        line = raw.rstrip("\n").removeprefix("(gdb) ")
        if held.startswith("#") and line.startswith("  ") and not _BY_PY_BT.match(line) and len(held) < _LONGEST:
            held = f"{held} {line.strip()}"
            continue
        if held:
            yield held
        held = line[:_LONGEST]
    if held:
        yield held


def _frame(line: str) -> dict[str, Any] | None:
    if found := (_PYTHON.search(line) if line.startswith("#") else _BY_PY_BT.match(line)):
        return {"name": found["function"], "filename": found["file"], "line": int(found["line"])}
    if (native := _FRAME.match(line)) is None:
        return None
    name = native["function"].partition("@")[0]
    return {
        "name": name.partition("(")[0] or name,
        "filename": native["file"] or native["library"] or "",
        "line": int(native["line"] or 0),
    }


def _thread(number: int, lwp: int, name: str) -> dict[str, Any]:
    return {
        "number": number,
        "os_thread_id": lwp,
        "thread_name": name,
        "active": False,
        "owns_gil": False,
        "frames": [],
    }
