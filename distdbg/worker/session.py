"""Run the worker side of one rank: start its features, answer the agent, and report how the script ended."""

from __future__ import annotations

import _thread
import os
import sys

from distdbg.worker import process_end, recorder, threads
from distdbg.worker.calls import CallLog
from distdbg.worker.context import RankContext
from distdbg.worker.hooks.hook_points import hide_from_compiler, timeout_of
from distdbg.worker.link import Link
from distdbg.worker.page import EXITING
from distdbg.worker.user_code import users_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType, ModuleType, TracebackType
    from typing import Any

    from distdbg.worker.guards.shared.runner import GuardRunner
    from distdbg.worker.hooks.hook_points import Callback
    from distdbg.worker.memory.watch import MemoryWatch
    from distdbg.worker.overfit import Overfitting
    from distdbg.worker.profile.profiler import Profiler
    from distdbg.worker.rehearsal import OperationsKeeper
    from distdbg.worker.watch import Watches

#: Time between SIGTERM and SIGKILL for a rank that neither torchrun nor an agent can end: torchrun's own default.
_GRACE_S = 30.0

#: The session of this process; None outside a run, where it is off, and in children of a rank.
current: Session | None = None


def start() -> Session | None:
    """None where there is no agent, where it is switched off, or where anything at all goes wrong."""
    global current  # noqa: PLW0603
    folder = os.environ.get("DISTDBG_NODE_DIR")
    if not folder or os.environ.get("DISTDBG_WORKER") == "off" or "RANK" not in os.environ:
        return None
    try:
        current = Session(folder, int(os.environ["RANK"]), int(os.environ.get("DISTDBG_ATTEMPT", "1")))
        os.register_at_fork(after_in_child=current.child_began)
    except Exception as error:
        current = None
        _report_failed_start(folder, error)
    return current


def _report_failed_start(folder: str, error: Exception) -> None:
    """The report says then that this rank was not observed. An OSError means that no agent can be reached."""
    try:
        if not isinstance(error, OSError):
            link = Link(f"{folder}/agent.sock")
            link.send("hello", {"rank": int(os.environ["RANK"]), "pid": os.getpid()})
            link.send("fact", {"kind": "worker-failed", "error": repr(error)})
            link.close()
    except Exception:
        return


class Session(RankContext):
    """Raises OSError or ValueError only from the constructor. Features are loaded once torch is imported."""

    def __init__(self, folder: str, rank: int, attempt: int) -> None:
        self._ended = self._left = False
        self._guards: GuardRunner | None = None
        self._memory: MemoryWatch | None = None
        self._watches: Watches | None = None
        self._profiler: Profiler | None = None
        self._overfitting: Overfitting | None = None
        self._operations: OperationsKeeper | None = None
        self._shortest_timeout: float | None = None
        super().__init__(folder, rank, attempt)
        self._agent = self.link.peer()
        self._parent = self._end_with_parent()
        self._pid = os.getpid()
        process_end.call_back_at_exit(self._leaves)
        self._calls: CallLog = self.mapped_or_private("calls of torch.distributed", CallLog, self.stem)
        self._calls.subscribe(self.bus, self.page)
        self.imports.after("torch", self._torch_imported)
        self.bus.subscribe("init", self._initialised)
        self.bus.subscribe("group-begins", self._group_begins)
        self.bus.subscribe("group", self._group_made)
        # The thread starts no sooner: before torch.distributed the agent asks nothing, and Python 3.12 warns where a
        # script with a second thread forks.
        self.imports.after("torch.distributed.distributed_c10d", self._start_listener)
        self.imports.after("torch._dynamo.trace_rules", hide_from_compiler)
        if os.environ.get("DISTDBG_KEEP_LAYERS") or os.environ.get("DISTDBG_SKIP_ATTENTION"):
            from distdbg.worker.shrunk import shrinking  # nothing of it is loaded without a request

            shrinking.start(self)

    def script_ended(self, error: BaseException | None = None, traceback: TracebackType | None = None) -> None:
        """`error` is None where the script returned."""
        if self._ended:
            return
        self._ended = True
        try:
            self.page.phase(EXITING)
            self._finish_observers(failed=error is not None and not isinstance(error, SystemExit))
            if self._memory is not None:
                self._memory.script_ends(error)
            ended: dict[str, object] = {"how": "returned", "exit": 0}
            if isinstance(error, SystemExit):  # the exit status of the process, as sys.exit documents it
                status = error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)
                ended = {"how": "SystemExit", "exit": status, "where": threads.where_of(traceback)}
                self._raised(threads.turned_into_exit(error) if status else None)
            elif error is not None:
                ended = {"how": "exception", "exit": None}
                self._raised(error, traceback)
            self.link.send("script-end", ended, last_words=True)
        except Exception:
            return
        finally:
            self.finish_profile()

    def _raised(self, error: BaseException | None, traceback: TracebackType | None = None) -> None:
        if error is not None:
            for described in threads.described(error, traceback or error.__traceback__):
                self.link.send("exception", {"uncaught": True, **described}, last_words=True)

    def _leaves(self, status: object, frame: FrameType) -> None:
        """os._exit is called, by any thread or handler of a signal. A forked child is no rank."""
        try:
            if self._ended or os.getpid() != self._pid:
                return
            self._ended = True
            code = status & 0xFF if isinstance(status, int) else None
            self._raised(threads.turned_into_exit(sys.exc_info()[1]) if code else None)
            where = users_line(frame)
            self.link.send("script-end", {"how": "os._exit", "exit": code, "where": where}, last_words=True)
        except Exception:
            return

    def child_began(self) -> None:
        """In every forked child of the rank, and in their children. An exception would be printed there."""
        self._allow_tracing()  # the kernel forgets it at each fork
        if not self._left:
            self._left = True
            try:
                self._leave()
            except Exception:
                return

    def _leave(self) -> None:
        """A child is not a rank: stop everything, send nothing, and give the descriptors back, once in a process."""
        global current  # noqa: PLW0603
        current = None
        self._ended = True
        for descriptor_owner in (self.link, self._calls, recorder):
            descriptor_owner.close()
        self.page.close()
        self._guards = self._memory = self._profiler = self._overfitting = None
        self.bus.clear()  # before the watches end: a thread that does not exist here may hold its lock
        self.imports.clear()  # or a child that imports torch itself would start what a rank starts
        self.imports.after("torch._dynamo.trace_rules", hide_from_compiler)
        if self._watches is not None:
            self._watches.end()
            self._watches = None

    def watch(self, model: object, levels: str | Iterable[str]) -> list[str]:
        """What `distdbg.watch()` does; `model` may be None. Returns the levels that do not exist. May raise."""
        from distdbg.worker import watch

        asked = watch.words(levels)

        def begin(_torch: ModuleType) -> None:
            self._watches = watch.start(self, self._watches, asked)

        self.imports.after("torch", begin)
        if model is not None and self._watches is not None:
            self._watches.model(model)
        return [level for level in asked if level not in watch.LEVELS]

    def stop_observers(self) -> None:
        """The script has ended and its process continues: for trials, which run many scripts in one process."""
        self._finish_observers(failed=False)
        self._watches = None

    def restart_observers(self, *, reset_counts: bool) -> None:
        """Stop the observers of the script before, and observe the next one."""
        self.stop_observers()
        if reset_counts:
            self.page.reset_counts()
        self._start_guards()
        self._start_watches()
        self._start_overfit()

    def profile(self, question: dict[str, Any]) -> None:
        """Profile the steps that the agent asks for."""
        if self._profiler is None:
            from distdbg.worker.profile.profiler import Profiler

            self._profiler = Profiler(self)
        self._profiler.ask(question.get("id"), int(question["first"]), int(question["steps"]))

    def finish_profile(self) -> None:
        """After the last messages, since writing a file can take long."""
        try:
            if self._profiler is not None:
                self._profiler.finish()
        except Exception as error:
            self.fact("profile-failed", error=repr(error))

    def subscriber_failed(self, event: str, subscriber: Callback, error: Exception) -> None:
        super().subscriber_failed(event, subscriber, error)
        if self._guards is not None:
            self._guards.subscriber_failed(subscriber, error)

    def _torch_imported(self, torch: Any) -> None:
        """Start what the environment asks for. A feature that fails to start does not stop the others."""
        for start_feature in (
            self._start_guards, self._start_memory, self._start_watches, self._start_profiler, self._start_overfit,
            self._start_operations,
        ):  # fmt: skip
            try:
                start_feature()
            except Exception as error:
                self._hook_failed("torch", error)
        if os.environ.get("DISTDBG_DETERMINISTIC") == "1":
            torch.use_deterministic_algorithms(mode=True, warn_only=True)

    def _start_guards(self) -> None:
        from distdbg.worker.guards import VARIABLE, read_modes
        from distdbg.worker.guards.shared.base import GuardContext
        from distdbg.worker.guards.shared.runner import GuardRunner

        modes = read_modes(os.environ.get(VARIABLE, ""))
        if modes.get("all") != "off":
            self._guards = GuardRunner(GuardContext(self, modes))
            self._guards.begin()

    def _start_memory(self) -> None:
        if "DISTDBG_MEMORY" in os.environ:  # else its package is not imported
            from distdbg.worker.memory import watch

            self._memory = watch.start(self)

    def _start_watches(self) -> None:
        if "DISTDBG_WATCH" in os.environ:
            from distdbg.worker import watch

            self._watches = watch.start(self)

    def _start_profiler(self) -> None:
        if "DISTDBG_PROFILE" in os.environ:
            from distdbg.worker.profile import profiler

            self._profiler = profiler.start(self)

    def _start_overfit(self) -> None:
        if "DISTDBG_OVERFIT_BATCH" in os.environ:
            from distdbg.worker import overfit

            self._overfitting = overfit.start(self)

    def _start_operations(self) -> None:
        if os.environ.get("DISTDBG_KEEP_OPERATIONS") == "on":
            from distdbg.worker.rehearsal import OperationsKeeper

            self._operations = OperationsKeeper(self)
        if os.environ.get("DISTDBG_VALUE_READS") == "on":
            from distdbg.worker.rehearsal import ValueReads

            ValueReads(self)

    def _finish_observers(self, *, failed: bool) -> None:
        """An exception of one does not stop the others."""
        overfitting, self._overfitting = self._overfitting, None
        guards, self._guards = self._guards, None
        try:
            if overfitting is not None:
                overfitting.finish(failed=failed)
        except Exception as error:
            self.fact("watch-failed", watch="Overfitting", error=repr(error))
        if guards is not None:
            guards.finish()
        if self._watches is not None:
            self._watches.finish(failed=failed)
        try:
            if self._operations is not None:
                self._operations.finish()
        except Exception as error:
            self.fact("watch-failed", watch="OperationsKeeper", error=repr(error))

    def _end_with_parent(self) -> int | None:
        try:
            parent = process_end.end_with_parent()
        except Exception as error:
            self.fact("may-be-orphaned", error=repr(error))
            return None
        self._allow_tracing()
        return parent

    def _allow_tracing(self) -> None:
        try:
            process_end.allow_tracing_by(self._agent)
        except Exception:
            return

    def _initialised(self, _group: object) -> None:
        dist = sys.modules["torch.distributed"]
        self.fact("init", rank=dist.get_rank(), world_size=dist.get_world_size(), backend=dist.get_backend())
        self.fact("recorder", served=recorder.serve(f"{self.stem}.recorder"))

    def _group_begins(self, caller: FrameType) -> None:
        """The shortest timeout of any group limits how long the agent can inspect a rank that hangs."""
        seconds = timeout_of(caller)
        if seconds is not None and (self._shortest_timeout is None or seconds < self._shortest_timeout):
            self._shortest_timeout = seconds
            self.fact("timeout", seconds=seconds)

    def _group_made(self, made: tuple[Any, Any]) -> None:
        """The flight recorder names groups without their members."""
        group, ranks = made
        name, description = getattr(group, "group_name", None), getattr(group, "group_desc", "")
        if name is not None:
            self.fact("group", name=name, desc=description, ranks=_short([int(rank) for rank in ranks]))

    def _start_listener(self, _module: ModuleType) -> None:
        # Not by `threading`: the script's own count of its threads stays the same.
        _thread.start_new_thread(self._answer, ())

    def _answer(self) -> None:
        """The listening thread: it sleeps in recv until the agent asks something."""
        rest = b""
        while data := self.link.wait():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                try:
                    self._answer_one(line)
                except Exception as error:
                    self.fact("question-failed", error=repr(error))
        if self._parent is not None:
            process_end.watch(self._parent, _GRACE_S)

    def _answer_one(self, line: bytes) -> None:
        from json import loads  # torch has loaded it by now

        question = loads(line)
        op, number = question.get("op"), question.get("id")
        if op == "exceptions":
            self.link.send("exceptions", {"id": number, "threads": threads.being_handled(_thread.get_ident())})
        elif op == "model":
            self.link.send("model", {"id": number, **self.model.without_gradient()})
        elif op == "stacks":
            threads.write_stacks(f"{self.stem}.stacks")
        elif op == "memory-snapshot":
            from distdbg.worker.memory.snapshots import SnapshotWriter

            (SnapshotWriter(self, None) if self._memory is None else self._memory.snapshots).take("asked", number)
        elif op == "profile":
            self.profile(question)


def _short(ranks: list[int]) -> list[int] | dict[str, int]:
    """Evenly spaced ranks, as nearly all groups have them, in three numbers: else 16,384 ranks send 16,384 each."""
    count, step = len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if count > 2 and ranks == list(range(ranks[0], ranks[0] + step * count, step or 1)):
        return {"first": ranks[0], "step": step, "count": count}
    return ranks
