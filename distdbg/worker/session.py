"""What runs beside a script inside its rank: the line to the agent, the heartbeat page, the hook bus."""

from __future__ import annotations

import _thread
import os
import sys

from distdbg.worker import exceptions, heartbeat, orphans, recorder, shrunk, stacks
from distdbg.worker.bus import Bus
from distdbg.worker.calls import CallLog
from distdbg.worker.importing import ImportWatch
from distdbg.worker.link import Link
from distdbg.worker.models import LastModel
from distdbg.worker.page import EXITING, PageWriter
from distdbg.worker.places import hide_from_compiler, timeout_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType, ModuleType, TracebackType
    from typing import Any

    from distdbg.worker.guards.shared.rota import Rota
    from distdbg.worker.memory.watch import MemoryWatch
    from distdbg.worker.overfit.overfitting import Overfitting
    from distdbg.worker.places import Told
    from distdbg.worker.profile.profiler import Profiler
    from distdbg.worker.watch import Watches

#: A rank that neither torchrun nor an agent can end any more has so long after SIGTERM: torchrun's own default.
_GRACE_S = 30.0

#: The one of this process; None outside a run, where it is off, and in children of a rank.
current: Session | None = None


def start() -> Session | None:
    """None where there is no agent, where it is switched off, or where anything at all goes wrong."""
    global current  # noqa: PLW0603
    folder = os.environ.get("DISTDBG_NODE_DIR")
    if not folder or os.environ.get("DISTDBG_WORKER") == "off" or "RANK" not in os.environ:
        return None
    try:
        current = Session(folder, int(os.environ["RANK"]), int(os.environ.get("DISTDBG_ATTEMPT", "1")))
        os.register_at_fork(after_in_child=current.leave)
    except Exception as error:
        current = None
        _say_why_not(folder, error)
    return current


def _say_why_not(folder: str, error: Exception) -> None:
    """The report says then that this rank was not observed. What cannot reach the agent is not said."""
    try:
        if not isinstance(error, OSError):
            link = Link(f"{folder}/agent.sock")
            link.send("hello", {"rank": int(os.environ["RANK"]), "pid": os.getpid()})
            link.send("fact", {"kind": "worker-failed", "error": repr(error)})
            link.close()
    except Exception:
        return


class Session:
    """Raises OSError or ValueError only from the constructor."""

    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self._ended = False
        self.stem = f"{folder}/{rank:05d}"
        self.link = Link(f"{folder}/agent.sock")
        self.link.send("hello", {"rank": rank, "pid": os.getpid()})
        self.page: PageWriter = self._kept(
            "heartbeat page", lambda path: PageWriter(path, rank, attempt), f"{self.stem}.page"
        )
        self._agent = self.link.peer()
        self._parent = self._end_with_parent()
        self.imports = imports = ImportWatch(self._not_hooked)
        self.bus = Bus(imports, self._dropped)
        heartbeat.subscribe(self.bus, self.page)
        self.calls: CallLog = self._kept("calls of torch.distributed", CallLog, self.stem)
        self.calls.subscribe(self.bus, self.page)
        self.model = LastModel(self.bus)
        self._rota: Rota | None = None
        self._profiler: Profiler | None = None
        self.rank, self.attempt = rank, attempt
        self._memory: MemoryWatch | None = None
        self._watches: Watches | None = None
        imports.after("torch", self._stand_guard)
        imports.after("torch", self._watch_memory)
        imports.after("torch", self._watch_numbers)
        imports.after("torch", self._profile)
        imports.after("torch", self._be_deterministic)
        self._overfitting: Overfitting | None = None
        imports.after("torch", self._overfit)
        self.bus.subscribe("init", self._initialised)
        self._shortest: float | None = None
        self.bus.subscribe("group-begins", self._group_begins)
        self.bus.subscribe("group", self._group_made)
        # Before torch.distributed there is nobody to be asked about, and a second thread would make Python 3.12
        # warn where a script forks.
        imports.after("torch.distributed.distributed_c10d", self._listen)
        imports.after("torch._dynamo.trace_rules", hide_from_compiler)
        shrunk.start(self)

    def _kept(self, what: str, make: Callable[[str | None], Any], path: str) -> Any:  # noqa: ANN401
        """Where the node's memory has no room for a file, the rank does without a reader of it, and says so."""
        try:
            return make(path)
        except OSError as error:
            self.fact("not-kept", what=what, error=error.strerror)
            return make(None)

    def fact(self, kind: str, **fields: object) -> bool:
        """Tell the agent something for this rank's facts; False where it was dropped. Never blocks, never raises."""
        return self.link.send("fact", {"kind": kind, **fields})

    def script_failed(self, error: BaseException, traceback: TracebackType | None) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            self.page.phase(EXITING)
            self._end_overfitting(failed=not isinstance(error, SystemExit))
            self._end_guard()
            if self._watches is not None:
                self._watches.finish(failed=not isinstance(error, SystemExit))
            if self._memory is not None:
                self._memory.snapshots.failed(error)
            if isinstance(error, SystemExit):
                self.link.send("script-end", {"how": "SystemExit", "exit": _exit_status(error)}, last_words=True)
                return
            told = exceptions.describe(error, traceback)
            self.link.send("exception", {"uncaught": True, **told}, last_words=True)
            self.link.send("script-end", {"how": "exception", "exit": None}, last_words=True)
        except Exception:
            return
        finally:
            self._end_profile()

    def script_returned(self) -> None:
        try:
            self.page.phase(EXITING)
            self._end_overfitting(failed=False)
            self._end_guard()
            if self._watches is not None:
                self._watches.finish(failed=False)
            self.link.send("script-end", {"how": "returned", "exit": 0}, last_words=True)
        except Exception:
            return
        finally:
            self._end_profile()

    def leave(self) -> None:
        """In a forked child: it is not the rank, and says nothing."""
        global current  # noqa: PLW0603
        current = None
        self._ended = True
        self._rota = None
        self._memory = self._profiler = self._overfitting = None
        self.bus.clear()  # first: its lock may be held by a thread that is not here
        if self._watches is not None:
            self._watches.end()
            self._watches = None
        self.page.close()
        self.calls.close()
        self.link.close()
        self._show_to_agent()

    def _end_with_parent(self) -> int | None:
        try:
            parent = orphans.end_with_parent()
        except Exception as error:
            self.fact("may-be-orphaned", error=repr(error))
            return None
        self._show_to_agent()
        return parent

    def _show_to_agent(self) -> None:
        try:
            orphans.may_be_looked_at_by(self._agent)
        except Exception:
            return

    def _stand_guard(self, _torch: ModuleType) -> None:
        """Not sooner: until torch is imported there is nothing to guard, and nothing is loaded for it."""
        from distdbg.worker.guards import VARIABLE, read_modes
        from distdbg.worker.guards.shared.base import Desk
        from distdbg.worker.guards.shared.rota import Rota

        modes = read_modes(os.environ.get(VARIABLE, ""))
        if modes.get("all") == "off":
            return
        desk = Desk(
            rank=self.rank, bus=self.bus, page=self.page, tell=self.fact, model=self.model.newest, modes=modes,
        )  # fmt: skip
        self._rota = Rota(desk, self._guard_failed)
        self._rota.begin()

    def _watch_memory(self, _torch: ModuleType) -> None:
        if "DISTDBG_MEMORY" in os.environ:  # else nothing is loaded for it
            from distdbg.worker import memory

            self._memory = memory.start(self)

    def _watch_numbers(self, _torch: ModuleType) -> None:
        if "DISTDBG_WATCH" in os.environ:  # else nothing is loaded for it
            from distdbg.worker import watch

            self._watches = watch.start(self)

    def _profile(self, _torch: ModuleType) -> None:
        if "DISTDBG_PROFILE" in os.environ:  # else nothing is loaded for it
            from distdbg.worker import profile

            self._profiler = profile.start(self)

    def _be_deterministic(self, torch: Any) -> None:  # noqa: ANN401
        """What the preset asks for beside variables of torch's own; what the script says of it later holds."""
        if os.environ.get("DISTDBG_DETERMINISTIC") == "1":
            torch.use_deterministic_algorithms(mode=True, warn_only=True)

    def _profile_as_asked(self, question: dict[str, Any]) -> None:
        if self._profiler is None:
            from distdbg.worker.profile.profiler import Profiler

            self._profiler = Profiler(self)
        self._profiler.ask(question.get("id"), int(question["first"]), int(question["steps"]))

    def _end_profile(self) -> None:
        """After the last words: to write a file may take its time."""
        try:
            if self._profiler is not None:
                self._profiler.finish()
        except Exception as error:
            self.fact("profile-failed", error=repr(error))

    def _overfit(self, _torch: ModuleType) -> None:
        if "DISTDBG_OVERFIT_BATCH" in os.environ:  # else nothing is loaded for it
            from distdbg.worker import overfit

            self._overfitting = overfit.start(self)

    def _end_overfitting(self, *, failed: bool) -> None:
        """What it raises does not cost the script's last words."""
        overfitting, self._overfitting = self._overfitting, None
        try:
            if overfitting is not None:
                overfitting.finish(failed=failed)
        except Exception as error:
            self.fact("watch-failed", watch="Overfitting", error=repr(error))

    def watch(self, model: object, levels: str | Iterable[str]) -> list[str]:
        """The script asks for what `--watch` does; `model` may be None. Gives the levels that there are not. May
        raise."""
        from distdbg.worker import watch

        asked = watch.words(levels)

        def begin(_torch: ModuleType) -> None:
            self._watches = watch.start(self, self._watches, asked)

        self.imports.after("torch", begin)
        if model is not None and self._watches is not None:
            self._watches.model(model)
        return [level for level in asked if level not in watch.LEVELS]

    def _snapshot(self, asked: object) -> None:
        if self._memory is None:
            from distdbg.worker.memory.snapshots import Snapshots

            Snapshots(self, None).take("asked", asked)
        else:
            self._memory.snapshots.take("asked", asked)

    def _guard_failed(self, guard: str, error: Exception) -> None:
        self.fact("guard-failed", guard=guard, error=repr(error))

    def _end_guard(self) -> None:
        rota, self._rota = self._rota, None
        if rota is not None:
            rota.finish()

    def stand_down(self) -> None:
        """The script has ended, and its process goes on: for trials, too."""
        self._end_overfitting(failed=False)
        self._end_guard()
        if self._watches is not None:
            self._watches.finish(failed=False)
            self._watches = None

    def guard_anew(self) -> None:
        """What is called from now on is another script: for trials, which run many of them in one process."""
        self.stand_down()
        self.page.begin_anew()
        self._stand_guard(sys)
        self._watch_numbers(sys)
        self._overfit(sys)

    def _dropped(self, event: str, subscriber: Told, error: Exception) -> None:
        who = getattr(subscriber, "__qualname__", "?")
        self.fact("subscriber-dropped", event=event, subscriber=who, error=repr(error))
        if self._rota is not None:
            self._rota.off(subscriber, error)

    def _not_hooked(self, module: str, error: Exception) -> None:
        self.fact("not-hooked", module=module, error=repr(error))

    def _initialised(self, _group: object) -> None:
        dist = sys.modules["torch.distributed"]
        self.fact("init", rank=dist.get_rank(), world_size=dist.get_world_size(), backend=dist.get_backend())
        self.fact("recorder", served=recorder.serve(f"{self.stem}.recorder"))

    def _group_begins(self, caller: FrameType) -> None:
        """The shortest timeout of any group says until when a rank that hangs can still be looked at."""
        seconds = timeout_of(caller)
        if seconds is not None and (self._shortest is None or seconds < self._shortest):
            self._shortest = seconds
            self.fact("timeout", seconds=seconds)

    def _group_made(self, made: tuple[Any, Any]) -> None:
        """The recorder names groups, and not who is in them."""
        group, ranks = made
        name, about = getattr(group, "group_name", None), getattr(group, "group_desc", "")
        if name is not None:
            self.fact("group", name=name, desc=about, ranks=_short([int(rank) for rank in ranks]))

    def _listen(self, _module: ModuleType) -> None:
        # Below threading: the script's own count of its threads stays what it was.
        _thread.start_new_thread(self._answer, ())

    def _answer(self) -> None:
        """The watcher thread: it sleeps in recv until the agent asks."""
        rest = b""
        while data := self.link.wait():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                try:
                    self._answer_one(line)
                except Exception as error:
                    self.fact("question-failed", error=repr(error))
        if self._parent is not None:
            orphans.watch(self._parent, _GRACE_S)

    def _answer_one(self, line: bytes) -> None:
        from json import loads  # torch has loaded it by now

        question = loads(line)
        if question.get("op") == "exceptions":
            threads = exceptions.being_handled(_thread.get_ident())
            self.link.send("exceptions", {"id": question.get("id"), "threads": threads})
        elif question.get("op") == "model":
            self.link.send("model", {"id": question.get("id"), **self.model.without_gradient()})
        elif question.get("op") == "stacks":
            stacks.write(f"{self.stem}.stacks")
        elif question.get("op") == "memory-snapshot":
            self._snapshot(question.get("id"))
        elif question.get("op") == "profile":
            self._profile_as_asked(question)


def _short(ranks: list[int]) -> list[int] | dict[str, int]:
    """Evenly spaced ranks, as nearly all groups have them, in three numbers: else 16,384 ranks tell 16,384 each."""
    count, step = len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if count > 2 and ranks == list(range(ranks[0], ranks[0] + step * count, step or 1)):
        return {"first": ranks[0], "step": step, "count": count}
    return ranks


def _exit_status(error: SystemExit) -> int:
    """What the process will exit with, as sys.exit documents it."""
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
