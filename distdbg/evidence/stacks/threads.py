"""Read Python stacks of a process from py-spy's JSON: threads of frames, the innermost first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from distdbg.evidence import jsonl
from distdbg.evidence.frames import Activity, Origin, activity_of, module_path, origin_of
from distdbg.evidence.templates import Templates

#: Frames of a thread that are kept, the innermost: those that a deep recursion repeats further out decide nothing.
MOST_FRAMES = 500
#: C libraries that only pass a call on, or wait on behalf of a caller.
_PASSES_ON = re.compile(
    r"(?:lib(?:c|pthread|m|dl|rt|gcc_s|stdc\+\+|ffi|python\d[\d.]*t?)[-.]|ld-|_ctypes\.|python\d*|\[)"
)
#: A debugger names the source of a function instead of its library if it has both.
_SOURCE = re.compile(r"\.(?:[chsS]|cc|cpp|cxx|hh|hpp|inl|cu|cuh|rs|pyx)$")
#: pid, thread_id, os_thread_id
_IDS = re.compile(r'(id": ?)([1-9]\d{0,17})(?=[,}])')


@dataclass(frozen=True, slots=True)
class Frame:
    """`line` is 1-based, 0 where it is not known. `variables` are those few that the capture kept: name -> repr."""

    function: str
    file: str
    line: int
    variables: Mapping[str, str] = field(default_factory=dict, compare=False)
    #: of a C frame the shared library, where the file is a source; else empty
    module: str = field(default="", compare=False)

    @property
    def origin(self) -> Origin:
        return origin_of(self.file)

    @property
    def activity(self) -> Activity:
        return activity_of(self.file, self.function)

    @property
    def users(self) -> bool:
        return origin_of(self.file) is Origin.USER

    @property
    def native(self) -> bool:
        return origin_of(self.file) is Origin.NATIVE

    @property
    def short(self) -> str:
        """`train.py:88 (in step)`: the file's own name; the whole path stands in the evidence."""
        inside = "" if self.function in ("<module>", "") else f" (in {self.function})"
        return f"{self.file.rpartition('/')[2]}:{self.line}{inside}"

    @property
    def library(self) -> str:
        """The name of a C frame's shared library: `libc.so.6`; empty if only its source is known."""
        name = (self.module or self.file).rpartition("/")[2] if self.native else ""
        return "" if _SOURCE.search(name) else name

    @property
    def passes_on(self) -> bool:
        """Whether its C library (`libc.so.6`, `libffi.so.8`) names no culprit, or is not known."""
        return not self.library or _PASSES_ON.match(self.library) is not None

    @property
    def pythons_own(self) -> bool:
        """Whether it is in an extension module of Python itself: `_socket`, `_multiprocessing`."""
        return "/lib-dynload/" in (self.module or self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}" if self.line else f"{self.function} ({self.file})"


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread; `os_id` of the main thread is the pid. `frames[0]` is the innermost frame."""

    pid: int
    os_id: int
    name: str
    active: bool
    holds_gil: bool
    frames: tuple[Frame, ...]

    @property
    def main(self) -> bool:
        return self.os_id == self.pid if self.os_id else self.name == "MainThread"

    @property
    def label(self) -> str:
        """`main thread`, or `thread` and its name, else its number in the system."""
        return "main thread" if self.main else f"thread {self.name or self.os_id}"

    @property
    def user_frames(self) -> tuple[Frame, ...]:
        return tuple(f for f in self.frames if f.users)

    @property
    def serves_a_launcher(self) -> bool:
        """A launcher's loop in the rank, and nothing of the user's, of torch's or of a framework's within it."""
        origins = _origins(self.frames)
        return Origin.LAUNCHER in origins and origins.isdisjoint((Origin.USER, Origin.TORCH, Origin.FRAMEWORK))

    @property
    def ours(self) -> bool:
        """distdbg's own thread in a rank: it is no part of what the user runs."""
        return bool(self.frames) and module_path(self.frames[-1].file) == "distdbg/worker/session.py"


@lru_cache(maxsize=4096)  # thousands of ranks have few different stacks
def _origins(frames: tuple[Frame, ...]) -> frozenset[Origin]:
    return frozenset(f.origin for f in frames)


def read_threads(value: object, cache: dict[Frame, Frame] | None = None) -> tuple[Thread, ...]:
    """py-spy's list of threads, or an iterator over it; entries of another form are left out.

    `cache` lets equal frames share memory.
    """
    shared = {} if cache is None else cache
    items = value if isinstance(value, (list, Iterator)) else ()
    return tuple(thread for item in items if isinstance(item, dict) and (thread := _thread(item, shared)) is not None)


class StackTexts:
    """Reads the JSON that py-spy prints of many ranks; equal stacks share memory."""

    def __init__(self) -> None:
        self._frames: dict[Frame, Frame] = {}
        self._templates = Templates(_IDS, self._parse)

    def read(self, text: str) -> tuple[tuple[Thread, ...], int]:
        """(threads, how many entries the list has). Raises what jsonl.parse raises."""
        (threads, count), ids = self._templates.read(text)
        own = ids.original
        return tuple(Thread(own(t.pid), own(t.os_id), t.name, t.active, t.holds_gil, t.frames) for t in threads), count

    def _parse(self, text: str) -> tuple[tuple[Thread, ...], int]:
        value = jsonl.parse(text)
        count = len(value) if isinstance(value, list) else int(value is not None)
        return read_threads(value, self._frames), count


def main_thread(threads: Iterable[Thread], pid: int) -> Thread | None:
    """The rank's own main thread; its children's are not meant."""
    return next((t for t in threads if t.pid == pid and t.main), None)


def judged_thread(threads: Iterable[Thread], pid: int) -> Thread | None:
    """The thread that says where a rank is: its main thread, unless that one only serves a launcher, as the main loop
    of a Ray worker does; then the thread that trains, which runs the user's code and is in torch if any is.

    Where two threads may be it, the main thread.
    """
    own = [thread for thread in threads if thread.pid == pid and not thread.ours]
    main = main_thread(own, pid)
    if main is None or not main.serves_a_launcher:
        return main
    users = [thread for thread in own if thread.user_frames and not thread.main]
    in_torch = [thread for thread in users if any(f.origin is Origin.TORCH for f in thread.frames)]
    for found in (in_torch, users):
        if len(found) == 1:
            return found[0]
    return main


def _thread(item: Mapping[str, Any], cache: dict[Frame, Frame]) -> Thread | None:
    frames = item.get("frames")
    if not isinstance(frames, list):
        return None
    read = (_frame(f) for f in frames[:MOST_FRAMES] if isinstance(f, dict))
    return Thread(
        pid=_whole(item.get("pid")),
        os_id=_whole(item.get("os_thread_id")),
        name=str(item.get("thread_name") or ""),
        active=item.get("active") is True,
        holds_gil=item.get("owns_gil") is True,
        frames=tuple(cache.setdefault(f, f) if not f.variables else f for f in read),
    )


def _frame(item: Mapping[str, Any]) -> Frame:
    return Frame(
        str(item.get("name") or "?"),
        str(item.get("filename") or ""),
        _whole(item.get("line")),
        dict(_variables(item.get("locals"))),
        str(item.get("module") or ""),
    )


def _variables(value: object) -> Iterator[tuple[str, str]]:
    for variable in value if isinstance(value, list) else ():
        if isinstance(variable, dict) and isinstance(variable.get("name"), str):
            yield variable["name"], str(variable.get("repr"))


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0
