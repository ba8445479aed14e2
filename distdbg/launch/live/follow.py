"""Follow a run to its end that another process launched: a batch job, or one of another terminal.

Everything is read from the run directory, as `distdbg logs -f` does; `Job` says what the directory cannot know.
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from distdbg.collect.files.bounded_read import read_whole
from distdbg.collect.runs.run_status import MOST_REPORT
from distdbg.collect.runs.run_tail import FileTail, RunTail
from distdbg.errors import EXIT_LOST
from distdbg.evidence.exit_status import exit_status
from distdbg.launch.io.loop import handled
from distdbg.launch.live.console import Console, Show, Shown
from distdbg.launch.live.readers import show_rest, wait_for_readers
from distdbg.launch.live.state import RunState
from distdbg.launch.live.view import LiveView, make_view
from distdbg.rundir import RunDir
from distdbg.terminal import LAST_WORDS_S, is_behind, outlive_terminal

_TURN_S = 0.1
_LOOK_AT_NODES_S = 1.0
#: Without a terminal the user cannot be asked after an interrupt: the job goes on.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ASK = "[d]etach and let it run, [c]ancel it, or Enter to continue following? "


@dataclass(frozen=True)
class JobStanding:
    """`text` is shown whenever it changes. `code` of a job that is over and left no word of its own; None unknown."""

    text: str = ""
    over: bool = False
    code: int | None = None


class Job(Protocol):
    """What is followed. `name` begins sentences; none of the methods waits for anything."""

    name: str
    may_cancel: bool

    def standing(self, *, finished: bool) -> JobStanding:
        """`finished`: the launch on the other side has written its end."""

    def cancel(self) -> None:
        """Gently; a second time at once. Raises DistdbgError."""

    def close(self) -> None: ...


class Following:
    """`until_end` returns the job's exit code, EXIT_LOST where it was left running."""

    def __init__(self, run: RunDir, job: Job, show: Show, world_size: int | None = None) -> None:
        outlive_terminal()  # a window that is closed leaves the job to itself, and what is printed is lost
        self._run = run
        self._job = job
        self._said = ""
        self._signals: list[int] = []
        self._cancelling = False
        self._state = RunState()
        self._nodes = RunTail(run)
        self._nodes_at = float("-inf")
        self._events = FileTail(run.events)
        self._log = FileTail(run.batch_log)
        self._finished: dict[str, Any] | None = None
        self.launched = False
        self._view = make_view(self._state, run.id)
        self._console = Console(run, show, world_size=world_size, live=self._view.live)

    def until_end(self) -> int:
        try:
            with handled(_SIGNALS, lambda number, _: self._signals.append(number)):
                standing = self._follow()
                if standing is None:
                    return EXIT_LOST
                self._read()
                self._show(self._log.rest())
                show_rest(self._console, self._view)
                code = self._end(standing)
                before = len(self._signals)
                wait_for_readers(self._console, self._view, lambda: len(self._signals) > before)
                return code
        finally:
            self._view.close()
            self._job.close()
            is_behind(sys.stderr, within_s=LAST_WORDS_S)

    def _follow(self) -> JobStanding | None:
        """Follow the job until it is over; None where the user stops before."""
        while True:
            self._read()
            self._show(self._log.lines())
            standing = self._job.standing(finished=self._finished is not None)
            if standing.text and standing.text != self._said:
                self._said = standing.text
                self._view.say(standing.text)
            if standing.over:
                return standing
            self._draw(self._console.poll())
            if self._signals and self._wants_to_leave():
                return None
            time.sleep(_TURN_S)

    def _read(self) -> None:
        for event in self._events.objects():
            match event.get("event"):
                case "launched":
                    self.launched, self._finished = True, None
                case "requeued":
                    self._finished = None  # its log says why
                case "not-started":
                    self.launched = False  # its log says why
                case "finished":
                    self._finished = event
        if self._view.live and time.monotonic() - self._nodes_at > _LOOK_AT_NODES_S:
            self._nodes_at = time.monotonic()
            for node_rank, event in self._nodes.poll():
                self._state.apply(node_rank, event)

    def _draw(self, shown: Shown) -> None:
        if isinstance(self._view, LiveView):  # the launch on the other side says its plain line by itself
            self._view.tick(shown)

    def _show(self, lines: list[bytes]) -> None:
        if lines:
            self._view.show("\n".join(line.decode("utf-8", "replace") for line in lines))

    def _end(self, standing: JobStanding) -> int:
        """The word of the launch on the other side; where it left none, a verdict from what it left."""
        code = exit_status(self._finished or {})
        if code is not None:
            if not self._run.batch_log.exists():  # nobody here has shown the verdict
                self._view.show(read_whole(self._run.report_text, MOST_REPORT)[0] or "")
            return code
        if not self.launched:
            self._view.say(f"{self._job.name} ended before any rank was started")
            return EXIT_LOST if standing.code is None else standing.code
        from distdbg.launch.live.explain import explain

        text, report = explain(self._run)
        self._view.show(text)
        code = report.exit_code if report.exit_code is not None else standing.code
        return EXIT_LOST if code is None else code

    # -- Ctrl-C ---------------------------------------------------------------------------------------------

    def _wants_to_leave(self) -> bool:
        by, self._signals = self._signals, []
        answer: Literal["detach", "cancel", "go on"] = "detach"
        if by == [signal.SIGINT] and self._job.may_cancel and sys.stdin.isatty() and sys.stderr.isatty():
            answer = "cancel" if self._cancelling else self._ask()
        if answer == "cancel":
            self._cancel()
        elif answer == "detach":
            self._view.say(f"{self._job.name} is left to itself: `distdbg attach {self._run.id}` follows it again, "
                           f"`distdbg cancel {self._run.id}` ends it")  # fmt: skip
        return answer == "detach"

    def _cancel(self) -> None:
        from distdbg.errors import DistdbgError

        try:
            self._job.cancel()
        except DistdbgError as error:
            self._view.say(f"{error.message}. {error.remedy}")
            return
        self._view.say(
            "asked it to end at once" if self._cancelling else "asked it to end; Ctrl-C again ends it at once"
        )
        self._cancelling = True

    def _ask(self) -> Literal["detach", "cancel", "go on"]:
        """A second Ctrl-C at the question detaches: that harms nothing."""
        self._view.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            sys.stderr.write(f"\n{self._job.name}: {_ASK}")
            sys.stderr.flush()
            first = sys.stdin.readline()[:1].lower()
        except KeyboardInterrupt:
            first = "d"
        finally:
            signal.signal(signal.SIGINT, lambda n, _: self._signals.append(n))
        self._view = make_view(self._state, self._run.id)
        return {"d": "detach", "c": "cancel", "": "detach"}.get(first, "go on")  # type: ignore[return-value]
