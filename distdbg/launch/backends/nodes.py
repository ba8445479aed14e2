"""Base class of all backends' nodes: receives and relays agents' events, forwards signals, ends the job.

local/nodes.py  the agents are children of this process, each on a socket pair
remote_nodes.py    they are on other hosts, behind the standard streams of srun or ssh
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distdbg.launch.io.loop import signal_pipe
from distdbg.protocol.agent_events import ANOTHER_NODE_FAILED
from distdbg.protocol.launcher_events import AgentExited, Cancelled
from distdbg.protocol.requests import AskExceptions, Kill, Request, SendSignal, Stop, TakeDeathDump

if TYPE_CHECKING:
    from distdbg.launch.io.journal import Journal
    from distdbg.launch.plan.job import Plan
    from distdbg.rundir import RunDir

#: After one node has failed for good the others get this long to end by themselves, with their own evidence.
_OTHERS_MAY_TAKE_S = 3.0
_TURN_S = 0.1
#: Told twice to stop, agents have this long to kill their ranks before they are killed themselves.
_KILLED_WITHIN_S = 5.0
#: Seconds between SIGTERM and SIGKILL of a job that hangs.
_HUNG_GRACE_S = 5.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)

#: Called with (node rank, event) for everything that an agent says.
Listener = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True)
class AttemptStart:
    """One start of a plan's ranks. `own` are the arguments that every agent gets, `listener` gets every event of every
    agent, `say` shows a sentence to the user."""

    plan: Plan
    run: RunDir
    attempt: int
    own: Sequence[str]
    grace: float
    journal: Journal
    listener: Listener
    say: Callable[[str], None]


@dataclass
class AgentSeen:
    """One agent, as far as its launcher knows."""

    node_rank: int
    exit_code: int | None = None
    #: when it said that it was done, and with which code
    finished: tuple[float, int] | None = None
    torchrun_pid: int | None = None
    rank_pids: set[int] = field(default_factory=set)

    @property
    def gone(self) -> bool:
        return self.exit_code is not None


class Nodes(ABC):
    """The agents of one attempt. `start` starts them, `run` returns when the last is gone."""

    def __init__(self, start: AttemptStart) -> None:
        self._start = start
        self._selector = selectors.DefaultSelector()
        self.cancelled_by: str | None = None
        self._ended_because = ""
        self._first_failure: float | None = None
        self._kill_at: float | None = None

    @property
    @abstractmethod
    def agents(self) -> Sequence[AgentSeen]: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def tell_all(self, request: Request, *, but: AgentSeen | None = None) -> None:
        """Send it to every agent that still listens, except `but`."""

    @abstractmethod
    def _look_after(self) -> None:
        """Once a turn: who has ended, who is silent. Calls `_ended`."""

    @abstractmethod
    def _kill(self) -> None:
        """The agents that do not kill their ranks when asked to."""

    @abstractmethod
    def _end_orphans(self, every_turn: Callable[[], None]) -> None:
        """What agents that were killed have left."""

    def run(self, every_turn: Callable[[], None]) -> None:
        """`every_turn` is called ten times a second: the view."""
        while not all(agent.gone for agent in self.agents):
            for key, _ in self._selector.select(_TURN_S):
                key.data()
            self._look_after()
            self._end_the_others()
            every_turn()
        self._end_orphans(every_turn)

    # -- what agents say ------------------------------------------------------------------------------------

    def _take_event(self, agent: AgentSeen, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "agent-started":
                agent.torchrun_pid = event.get("torchrun_pid")
            case "agent-finished":
                agent.finished = (time.monotonic(), int(event["exit_code"]))
                if agent.finished[1] != 0 and self._first_failure is None:  # one srun ends with the last of its agents
                    self._first_failure = time.monotonic()
            case "rank-started":
                agent.rank_pids.add(int(event["pid"]))
            case "rank-exited":
                agent.rank_pids.discard(int(event.get("pid") or 0))
                if event.get("exit_code") and not event.get("asked_to_stop"):
                    self.tell_all(AskExceptions(), but=agent)
            case "death-dump":
                self.tell_all(TakeDeathDump(folder=event["folder"]), but=agent)
            case "stopping" if self.cancelled_by is None and _asks_all(str(event.get("reason", ""))):
                self.stop(str(event["reason"]))
        self._start.listener(agent.node_rank, event)

    def _ended(self, agent: AgentSeen, code: int, **fields: Any) -> None:  # noqa: ANN401
        agent.exit_code = code
        self._start.journal.note(AgentExited(node_rank=agent.node_rank, exit_code=code, **fields))
        if code != 0 and self._first_failure is None:
            self._first_failure = time.monotonic()

    def _end_the_others(self) -> None:
        if self._first_failure is not None and time.monotonic() - self._first_failure > _OTHERS_MAY_TAKE_S:
            self.tell_all(Stop(reason=ANOTHER_NODE_FAILED))
            self._first_failure = float("inf")
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._kill()
            self._kill_at = None

    # -- requests -------------------------------------------------------------------------------------------

    @property
    def living(self) -> list[int]:
        """The nodes whose agents can still answer."""
        return [agent.node_rank for agent in self.agents if not agent.gone and agent.finished is None]

    @property
    def ending(self) -> bool:
        """Whether a person asked for the end, or a node has failed for good."""
        return self.cancelled_by is not None or self._ended_because != "" or self._first_failure is not None

    def end(self, because: str) -> None:
        """As a stop does, but it is no cancel; a rank that hangs does not save anything when it gets SIGTERM."""
        self._ended_because = because
        self.tell_all(Stop(reason=because, most_grace=_HUNG_GRACE_S))

    def stop(self, by: str) -> None:
        """Gently; a second call ends the job at once. One that is failing already was not cancelled: it is hurried.

        So Slurm ends what is left of a job when it learns that a node is lost, after us.
        """
        if self.cancelled_by is None and self._first_failure is None:
            self.cancelled_by = by
            self._start.journal.note(Cancelled(by=by))
            self.tell_all(Stop(reason=by))
        else:
            self.tell_all(Kill(by=by))
            self._kill_at = time.monotonic() + _KILLED_WITHIN_S

    def _catch_signals(self) -> None:
        reader = signal_pipe((*_STOP_SIGNALS, *_FORWARDED))
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._signals(os.read(reader, 64)))

    def _signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _FORWARDED:
                self.tell_all(SendSignal(signal=number))
            elif number != signal.SIGHUP or self.cancelled_by is None:  # a terminal that closes may send several
                self.stop(signal.Signals(number).name)


def _asks_all(reason: str) -> bool:
    """Whether an agent was asked for the end of the job: a cancel, or a signal that torchrun ends its ranks by."""
    return reason.startswith("cancelled") or reason in {number.name for number in _FORWARDED}
