"""What a launch does about a hang: sees that nothing moves, has it captured, shows why, and does as --on-hang says.

It lives in the launcher's loop and waits for nothing: agents answer when they can, and what touches the run directory
(manifest, report) runs in a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Literal

from distdbg.launch.live.explain import explain, get_ready, where_ranks_are
from distdbg.launch.live.on_finding import tell_finding
from distdbg.launch.watch.dump_requests import DumpRequests, OpenDump
from distdbg.launch.watch.stall import StallEvent, StallWatch
from distdbg.plain_text import whole_number
from distdbg.protocol.agent_events import JOB_HUNG, Dumped
from distdbg.protocol.dump import BUSY, BUSY_START, COLLECTED
from distdbg.protocol.launcher_events import (
    DumpTaken,
    EndedHung,
    Explained,
    ExplainFailed,
    HangWatchError,
    MovingAgain,
    Slow,
    Stalled,
    StallSuspected,
    StartSlow,
    TimeoutNear,
    WentOn,
)
from distdbg.protocol.progress import SIMULATED_DEVICES, read_samples
from distdbg.protocol.requests import TakeDump
from distdbg.rundir import RunDir
from distdbg.whole_file import make_private_folder, write_json

if TYPE_CHECKING:
    from distdbg.launch.backends.nodes import Nodes
    from distdbg.launch.io.journal import Journal
    from distdbg.launch.live.state import RunState
    from distdbg.launch.live.view import LiveView, PlainView
    from distdbg.model import Report
    from distdbg.settings import JobSettings

_OPTIONS: dict[str, Any] = {"looks": 2, "interval": 0.5, "within": 20.0, "native": 1}
_DEATH_WITHIN_S = 2.0
#: A file system that does not answer keeps nobody from ending a hung job for longer.
_EXPLAIN_WITHIN_S = 60.0
_CLOSE_LOOK_S = 20.0  # with `auto`


_TRY_AGAIN_S = 2.0
_MOST_TRIES = 5


@dataclass
class _Look:
    """One at the ranks, for what the watch has said. `began` is on its clock."""

    reason: str
    event: StallEvent
    folder: Path
    began: float
    tries: int = 1
    finished: bool = False
    #: once all agents have answered: when its explanation is not waited for any longer
    until: float = float("inf")


def hang_timeout(settings: JobSettings) -> float | Literal["auto", "off"]:
    """Who gives the ranks the terminal may stand in a debugger for hours: then nothing is learnt of their pauses."""
    return "off" if settings.hang_timeout == "auto" and not settings.capture else settings.hang_timeout


def hang_lines(settings: JobSettings) -> list[str]:
    """What a timeout that was given covers, for the launch's first lines; nothing for the defaults."""
    hang, startup = hang_timeout(settings), settings.startup_timeout
    if isinstance(hang, str):
        return []
    if isinstance(startup, str):
        return [f"hang timeout {hang:g} s, from the start of the ranks: without progress, CPU time and bytes moved"]
    return [f"hang timeout {hang:g} s without progress, before the first step {startup:g} s"]


def close_look_after(settings: JobSettings) -> float:
    """How long a rank must be silent before its agent looks at its children, too; -1 where hangs are nobody's business.

    Early enough for two looks before an alarm.
    """
    if hang_timeout(settings) == "off":
        return -1.0
    given = [t for t in (settings.hang_timeout, settings.startup_timeout) if not isinstance(t, str)]
    return min(max(0.5, min(given, default=_CLOSE_LOOK_S * 3) / 3), _CLOSE_LOOK_S)


class HangWatch:
    """`hear` takes every event of every agent, `tick` is called ten times a second by the loop that hears them."""

    def __init__(
        self, settings: JobSettings, run: RunDir, state: RunState, journal: Journal, view: LiveView | PlainView
    ) -> None:
        self._settings = settings
        self._run = run
        self._state = state
        self._journal = journal
        self._view = view
        self._attempt = 0
        self._watch: StallWatch | None = None
        self._working: threading.Thread | None = None
        self._wait_until = 0.0
        self._to_show: list[tuple[str, Report | None]] = []
        self._to_say: list[str] = []
        #: the newest verdict that the terminal has shown
        self.explained: Report | None = None
        self._look: _Look | None = None
        self._later: tuple[float, str, StallEvent, int] | None = None
        #: the job is to be ended once it is explained
        self._doomed = False
        #: what was done about a hang: the run ends with 75, or goes on with another attempt
        self.ended: Literal["kill", "restart"] | None = None

    def guard(self, nodes: Nodes) -> None:
        """Nodes that are about to start: the first ones, or those of a restart."""
        self._nodes = nodes
        self._dumps = DumpRequests(nodes.tell_all)
        self._watch, self._look, self._later = None, None, None
        self._doomed, self.ended = False, None

    def hear(self, node_rank: int, event: Mapping[str, Any]) -> None:
        try:
            self._hear(node_rank, event)
        except Exception as error:
            self._broke(error)

    def _broke(self, error: Exception) -> None:
        """An error of ours costs the watch for hangs, and never the job."""
        self._watch = None
        self._journal.note(HangWatchError(error=repr(error), traceback="".join(format_exception(error))))

    def _hear(self, node_rank: int, event: Mapping[str, Any]) -> None:
        match event.get("event"):
            case "signs" if self._watch is not None:
                self._watch.add(time.monotonic(), node_rank, read_samples(event))
            case "attempt-started":
                self._start_attempt(int(event.get("attempt", 1)))
            case "rank-exited" if self._watch is not None:
                self._watch.ended(int(event["rank"]))
                failed = event.get("exit_code") and not event.get("asked_to_stop")
                if failed and event.get("attempt") == self._attempt:
                    self._leave_to_torchrun()
            case "death-dump":
                self._expect(Path(event["folder"]))
            case "dumped":
                self._dumps.hear(node_rank, Dumped.from_record(event))

    def _leave_to_torchrun(self) -> None:
        """A rank has failed, so torchrun is ending the attempt. Ranks that do not move are no hang from here on, and a
        hang that is still looked at no longer decides how the job ends."""
        self._watch, self._later, self._doomed = None, None, False

    def _start_attempt(self, number: int) -> None:
        hang = hang_timeout(self._settings)
        if hang != "off" and number > self._attempt:
            self._attempt = number
            simulated = os.environ.get(SIMULATED_DEVICES) == "on"
            self._watch = StallWatch(hang, self._settings.startup_timeout, simulated=simulated)

    def tick(self, _shown: None = None) -> None:
        try:
            self._tick()
        except Exception as error:
            self._broke(error)

    def _tick(self) -> None:
        self._show()
        if self._working is not None and (not self._working.is_alive() or time.monotonic() >= self._wait_until):
            self._working = None
            self._act()
        if self._later is not None and time.monotonic() >= self._later[0]:
            _, reason, event, tries = self._later
            self._later = None
            self._look_at(reason, event, tries)
        detected = self._watch.check(time.monotonic()) if self._watch and not self._nodes.ending else None
        if detected is not None:
            self._handle(detected)
        for dump in self._dumps.done(time.monotonic()):
            self._dumped(dump)

    def finish(self) -> None:
        """All agents are gone: what was still to come of a dump does not come."""
        for dump in self._dumps.done(time.monotonic(), all_of_them=True):
            self._dumped(dump)
        if self._working is not None:
            self._working.join(10.0)
        self.tick()

    # -- words of the watch ---------------------------------------------------------------------------------

    def _handle(self, event: StallEvent) -> None:
        told: dict[str, Any] = {"attempt": self._attempt, "since": _epoch(event.since)}
        told["quiet_s"] = round(event.quiet_s, 1)
        match event.kind:
            case "suspected":
                self._journal.note(StallSuspected(**told, timeout_s=round(event.limit_s, 1)))
            case "stalled":
                given = not isinstance(self._settings.hang_timeout, str)
                self._journal.note(Stalled(**told, timeout_s=round(event.limit_s, 1), given=given))
                self._view.say(f"no rank has moved for {event.quiet_s:.0f} s: looking where they stand")
                self._doomed = self._settings.on_hang != "report"
                self._look_at("hang", event)
            case "timeout-near":
                self._journal.note(TimeoutNear(**told, timeout_s=event.limit_s, ranks=list(event.ranks)))
                self._view.say(
                    f"a process group's timeout of {event.limit_s:g} s is near: looking where the ranks stand"
                )
                self._look_at("timeout", event)
            case "start-slow":
                self._journal.note(StartSlow(**told, timeout_s=round(event.limit_s, 1)))
                self._view.say(f"no rank has moved for {event.quiet_s:.0f} s, early in the job: looking where they are")
                self._look_at("start", event)
            case "start-busy":
                self._journal.note(StartSlow(**told, timeout_s=round(event.limit_s, 1), busy=True))
                self._look_at(BUSY_START, event)
            case "slow":
                self._journal.note(Slow(**told, why=event.why))
            case "went-on":
                self._journal.note(WentOn(**told))
            case "moving-again":
                self._doomed, self._later = False, None  # also where it was to be ended, and is still looked at
                self._journal.note(MovingAgain(**told))
                self._view.say(f"the job moves again, after {event.quiet_s:.0f} s")

    def _look_at(self, reason: str, event: StallEvent, tries: int = 1) -> None:
        """One dump a silence: none where the newest one is later than the last progress."""
        now, t = time.monotonic(), time.time()
        if self._look is not None and self._look.began > event.since and self._look.reason in (reason, "hang"):
            self._act()
        elif self._dumps.busy:
            self._later = (now + _TRY_AGAIN_S, reason, event, tries)
        else:
            folder = self._run.attempt(self._attempt).dump(reason, t)
            self._look = _Look(reason, event, folder, now, tries)
            stalled = {"since": _epoch(event.since), "quiet_s": event.quiet_s, "timeout_s": event.limit_s}
            nodes = self._nodes.living
            request = TakeDump(
                folder=str(folder), **(_OPTIONS | ({"native": 0} if reason in ("start", BUSY_START) else {}))
            )
            self._dumps.ask(request, reason, t=t, now=now, nodes=nodes, stalled=stalled)
            threading.Thread(target=get_ready, name="get-ready", daemon=True).start()

    def _expect(self, folder: Path) -> None:
        """An agent lost a rank, and looks at the others by itself."""
        until = time.monotonic() + _DEATH_WITHIN_S
        nodes = set(self._nodes.living)
        self._dumps.expect(OpenDump(folder, "death", "agent", time.time(), until, nodes, 1, None))

    # -- what comes of a dump -------------------------------------------------------------------------------

    def _dumped(self, dump: OpenDump) -> None:
        manifest = dump.manifest({r.rank: r.node_rank for r in self._state.ranks.values()})
        told = list(manifest.ranks.values())
        collected = told.count(COLLECTED)
        self._journal.note(
            DumpTaken(folder=self._run.relative(dump.folder), reason=dump.reason, seconds=dump.seconds,
            collected=collected, ranks=len(told), because=dump.because,
        ))  # fmt: skip
        look = self._look if self._look is not None and self._look.folder == dump.folder else None
        if look is not None and not collected and self._try_again(look, dump):
            return
        before = self._working

        def work() -> None:
            if before is not None:
                before.join(30.0)
            try:
                with contextlib.suppress(OSError):  # a full disk; the report has the nodes' reasons from DumpTaken
                    make_private_folder(dump.folder)
                    write_json(dump.folder / "manifest.json", manifest.fields())
                if look is not None and look.reason == BUSY_START:
                    self._say_where(look)
                elif look is not None:
                    self._explain()
            except Exception as error:  # the job goes on, whatever happens to its report
                self._to_show.append((f"distdbg: the dump could not be explained: {error!r}", None))
                self._journal.note(ExplainFailed(error=repr(error)))
            if look is not None:
                look.finished = True

        self._wait_until = time.monotonic() + _EXPLAIN_WITHIN_S
        if look is not None:
            look.until = self._wait_until
        self._working = threading.Thread(target=work, name="explain", daemon=True)
        self._working.start()

    def _try_again(self, look: _Look, dump: OpenDump) -> bool:
        """Where somebody else had just asked for one: what they get is not explained by anybody."""
        if look.tries >= _MOST_TRIES or not any(BUSY in because for because in dump.because):
            return False
        self._look = None
        self._later = (time.monotonic() + _TRY_AGAIN_S, look.reason, look.event, look.tries + 1)
        return True

    def _say_where(self, look: _Look) -> None:
        """In a thread. No verdict: a long start looks the same as a loop that never ends."""
        if places := where_ranks_are(self._run, look.folder):
            self._to_say.append(
                f"no rank has made a step or a call of torch.distributed for {look.event.quiet_s:.0f} s, but all work: "
                f"{places}. "
                "A start may take so long; nothing is ended for it"
            )

    def _explain(self) -> None:
        """In a thread. The report is built and written anew, and shown as at the end of a run."""
        text, report = explain(self._run)
        self._to_show.append((text, report))
        if self._settings.on_finding and report.findings:
            tell_finding(self._settings.on_finding, self._run.report_json)

    def _show(self) -> None:
        while self._to_say:
            self._view.say(self._to_say.pop(0))
        while self._to_show:
            text, report = self._to_show.pop(0)
            self._view.show(text)
            self.explained = report or self.explained
            self._journal.note(Explained(attempt=self._attempt))

    def _act(self) -> None:
        """Once all that can be known is written down and shown."""
        self._show()
        look = self._look
        if not self._doomed or self._nodes.ending or look is None:
            return
        if not look.finished and time.monotonic() < look.until:
            return
        again = self._settings.on_hang == "restart" and self._attempt - 1 < self._most_restarts
        self.ended = "restart" if again else "kill"
        self._journal.note(EndedHung(attempt=self._attempt, action=self.ended))
        self._view.say(f"ending the job, because it hangs{', to start it again' if again else ''}")
        self._nodes.end(JOB_HUNG)

    @property
    def _most_restarts(self) -> int:
        """As many as torchrun may make; one where it may make none."""
        return max(1, whole_number(self._settings.torchrun.get("max-restarts", "")) or 1)


def _epoch(t: float) -> float:
    """A moment of the watch's clock as seconds since the epoch."""
    return round(time.time() - (time.monotonic() - t), 3)
