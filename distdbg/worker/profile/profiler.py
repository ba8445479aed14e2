"""Profile one window of steps: from the end of one step of the optimizer to the end of another.

It begins and ends in the training thread, since torch's profiler belongs to a thread; a separate thread writes the
trace, compressed, in node-local memory under a temporary name, and renames it. torch's profiler writes uncompressed,
there or, where that is too small, in the temporary directory; that file is read once, and removed. Failures are
reported, and the training continues.
"""

from __future__ import annotations

import _thread
import os
import re
import sys
from collections.abc import Callable, Iterable
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Literal

from distdbg.evidence.trace.marks import HEADER
from distdbg.whole_file import WholeFile
from distdbg.worker.agent_files import free_bytes, no_room
from distdbg.worker.context import RankContext
from distdbg.worker.memory import figures
from distdbg.worker.profile.events import Lines, PhaseMarks

State = Literal["idle", "waiting", "open", "writing"]

#: A window ends early once this process has grown by so much: events lie in memory until they are written.
_MOST_GROWTH = 8 << 30
#: The end of the script waits so long for the file, and no longer.
_WRITE_WITHIN_S = 30.0
#: Events of a training before its first step.
_FIRST_EVENTS = ("pass", "data", "forward", "backward", "optimizer")
#: torch announces on standard error when its profiler starts and stops; we add nothing to the script's output.
_QUIET = ("KINETO_LOG_LEVEL", "6")


def start(context: RankContext) -> Profiler | None:
    """Once torch is imported; None where this rank is not to be profiled. Raises ValueError for invalid steps.

    The launch sets the steps, `FIRST:LAST`, and the ranks, `0-3,8` (all without the variable)."""
    steps = os.environ.get("DISTDBG_PROFILE", "")
    ranks = [part.partition("-") for part in os.environ.get("DISTDBG_PROFILE_RANKS", "").split(",") if part]
    chosen = not ranks or any(int(low) <= context.rank <= int(high or low) for low, _, high in ranks)
    if not steps or not chosen:
        return None
    first, _, last = steps.partition(":")
    profiler = Profiler(context)
    profiler.await_steps(int(first), int(last or first))
    return profiler


class Profiler:
    """One for a rank, and one window at a time. Nothing here raises but the constructor."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._bus = context.bus
        self._state: State = "idle"
        self._asked: object = None
        self._wanted = (0, 0)
        self._profile: Any = None
        self._marks: Any = None
        self._thread = 0
        self._rss = 0
        self._done = 0
        self._raw = ""  # the folder of torch's own trace, while there is one
        self._written = _thread.allocate_lock()  # held while a file is being written

    # -- which steps ------------------------------------------------------------------------------------------

    def await_steps(self, first: int, last: int) -> None:
        """The steps of `--profile`. Nothing listens before the first of them; step 1 begins with the first event."""
        self._state, self._wanted = "waiting", (first, last)
        if first == 1:
            for event in _FIRST_EVENTS:
                self._bus.subscribe(event, self._begins)
        else:
            self._context.page.at_step(first - 1, self._open)

    def ask(self, asked: object, first: int, count: int) -> None:
        """From the listening thread: `count` steps from `first` on, or from the next one where that is past."""
        if self._state != "idle":
            doing = "waits for the steps that it is to profile" if self._state == "waiting" else "is profiling already"
            self._report(asked, because=f"this rank {doing}")
            return
        self._state, self._asked, self._wanted = "waiting", asked, (first, first + count - 1)
        self._bus.subscribe("step", self._is_it_time)

    def _is_it_time(self, _optimizer: object) -> None:
        done, (first, last) = self._context.page.steps(), self._wanted
        if done + 1 >= first:
            self._bus.unsubscribe("step", self._is_it_time)
            self._wanted = done + 1, done + 1 + last - first
            self._open()

    def _begins(self, _subject: object) -> None:
        for event in _FIRST_EVENTS:
            self._bus.unsubscribe(event, self._begins)
        self._open()

    def finish(self) -> None:
        """The script has ended, by itself or by an error: a window that is open is written."""
        if self._state == "open":
            self._close("the script ended")
        elif self._state == "waiting":
            self._give_up(f"the script ended after {self._context.page.steps()} steps, before step {self._wanted[0]}")
        if self._state == "writing" and not self._written.acquire(timeout=_WRITE_WITHIN_S):
            rmtree(self._raw, ignore_errors=True)

    # -- the window ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            because = place(os.path.dirname(self._context.stem))[1] or profiler_of_the_script()
            if because:
                self._give_up(because)
                return
            # Python has one profile function a thread: the script's own stays, and there are no stacks then.
            self._profile = begin(stacks=sys.getprofile() is None)
            self._state, self._thread = "open", _thread.get_ident()
            self._rss, self._done = figures.rss(), self._wanted[0] - 1
            self._marks = PhaseMarks(self._bus)
            self._bus.subscribe("step", self._step_done)
            self._bus.subscribe("profiler", self._another_begins)
        except Exception as error:
            self._drop()
            self._give_up(repr(error))

    def _drop(self) -> None:
        """Discard a window that has begun: no later step may pay for it."""
        profile, self._profile = self._profile, None
        try:
            if self._marks is not None:
                self._marks.end()
            if profile is not None:
                profile.__exit__(None, None, None)
        except Exception as error:
            self._context.fact("profile-failed", error=repr(error))

    def _step_done(self, _optimizer: object) -> None:
        if _thread.get_ident() != self._thread:
            return
        self._done = self._context.page.steps()
        self._marks.step_done(self._done)
        if self._done >= self._wanted[1]:
            self._close()
        elif figures.rss() - self._rss > _MOST_GROWTH:
            self._close(f"the profile had grown by {_MOST_GROWTH >> 30} GiB")

    def _another_begins(self, _frame: object) -> None:
        """The script starts its own profiler: that would raise while ours runs."""
        if _thread.get_ident() == self._thread:
            self._close("the script's own profiler began")

    def _close(self, cut: str = "") -> None:
        """Ends the window; `cut` says why before its last step."""
        self._bus.unsubscribe("step", self._step_done)
        self._bus.unsubscribe("profiler", self._another_begins)
        profile, self._profile = self._profile, None
        try:
            self._marks.end()
            profile.__exit__(None, None, None)
            self._written = _thread.allocate_lock()
            self._written.acquire()
            self._state = "writing"
            _thread.start_new_thread(self._write, (profile, self._marks, cut))
        except Exception as error:
            self._give_up(repr(error))

    # -- afterwards ------------------------------------------------------------------------------------------

    def _write(self, profile: Any, marks: PhaseMarks, cut: str) -> None:
        try:
            first = self._wanted[0]
            name = f"steps-{first}-{max(first, self._done)}.json.gz"
            path = f"{self._context.stem}.profile-{name}"
            header, lines = self._header(profile.with_stack, cut), Lines(profile.kineto_results)
            folder, because = place(os.path.dirname(path), lines.count)
            if because:
                self._give_up(because)
                return
            self._raw = mkdtemp(prefix="distdbg-profile-", dir=folder)
            profile.export_chrome_trace(f"{self._raw}/raw")
            pack(f"{self._raw}/raw", path, header, (marks.events, lines.events))
            missing = cut and f"{cut} in step {self._done + 1}"
            self._report(self._asked, files=[{"file": os.path.basename(path), "name": name}], first=first,
                       last=self._done, missing="; ".join(filter(None, (missing, lines.missing))))  # fmt: skip
            self._state = "idle"
        except Exception as error:
            self._give_up(repr(error))
        finally:
            rmtree(self._raw, ignore_errors=True)
            self._written.release()

    def _header(self, stacks: bool, cut: str) -> dict[str, object]:
        dist: Any = sys.modules.get("torch.distributed")
        about = {"rank": self._context.rank, "host": os.uname().nodename, "attempt": self._context.attempt,
                 "first": self._wanted[0], "last": self._done, "wanted": list(self._wanted), "stacks": stacks,
                 "missing": cut}  # fmt: skip
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return {HEADER: about}
        return {HEADER: about, "distributedInfo": {"backend": dist.get_backend(), "rank": dist.get_rank(),
                                                   "world_size": dist.get_world_size()}}  # fmt: skip

    def _give_up(self, because: str) -> None:
        self._report(self._asked, because=because)
        self._state, self._asked = "idle", None

    def _report(self, asked: object, **fields: object) -> None:
        wanted = list(self._wanted)
        self._context.link.send("profile", {"id": asked, "wanted": wanted, **fields}, last_words=True)


def begin(*, stacks: bool) -> Any:
    """torch.profiler's lower half: the upper one imports inductor, and has a count of steps that is the script's."""
    torch: Any = sys.modules["torch"]
    profile = torch.autograd.profiler.profile(
        use_device="cuda" if figures.cuda() is not None else None, use_kineto=True, record_shapes=True,
        with_stack=stacks,
    )  # fmt: skip
    name, level = _QUIET
    added = name not in os.environ
    if added:
        os.environ[name] = level
    try:
        profile.__enter__()
    finally:
        if added:
            del os.environ[name]
    return profile


def profiler_of_the_script() -> str:
    """A description, empty where there is none. Also one in its warm-up, which torch itself does not show."""
    torch: Any = sys.modules["torch"]
    if torch.autograd._profiler_enabled():
        return "the script's own profiler was running"
    import gc

    cls = torch.autograd.profiler.profile
    for found in gc.get_referrers(cls):
        if type(found) is cls and found.entered and found.kineto_results is None:
            return "the script's own torch.profiler was being warmed up"
    return ""


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
    from gzip import GzipFile
    from json import dumps

    try:
        with open(source, "rb") as whole, WholeFile(target) as file:
            head = whole.read(_PIECE)
            whole.seek(-min(_PIECE, os.path.getsize(source)), os.SEEK_END)
            tail = whole.read()
            array, base = _ARRAY.search(head), _BASE.search(head) or _BASE.search(tail)
            if array is None or not tail.rstrip().endswith(b"}"):
                raise ValueError("torch did not complete its trace: is the disk full?")
            whole.seek(0)
            with GzipFile(fileobj=file, mode="wb", compresslevel=1) as packed:
                packed.write(whole.read(array.start()))
                packed.write(dumps(header).encode()[1:-1] + b",\n")
                packed.write(whole.read(len(array.group())))
                for some in events:  # they are first: at least one event of torch follows
                    for event in some(os.getpid(), int(base.group(1)) if base else 0):
                        packed.write(dumps(event).encode() + b",\n")
                while piece := whole.read(_PIECE):
                    if free_bytes(os.path.dirname(target)) < 0:
                        raise OSError(f"{os.path.dirname(target)} has no room left for it")
                    packed.write(piece)
    finally:
        if os.path.exists(source):
            os.unlink(source)
