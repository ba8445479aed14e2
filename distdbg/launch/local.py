"""The `local` backend: one agent a node, all on this machine, watched until the last is gone.

The launcher talks to each agent over a socket pair; when either end dies the other learns it at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdbg.launch import processes
from distdbg.launch.journal import Journal
from distdbg.launch.wire import Wire

_AGENT = Path(__file__).with_name("agent.py")
#: After one node has failed for good the others get this long to end by themselves, with their own evidence.
_OTHERS_MAY_TAKE_S = 3.0
_TURN_S = 0.1
#: An agent that has said its last word and does not end within this time is held by a file system.
_FROZEN_AGENT_S = 15.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)

#: Called with (node rank, event) for everything that an agent says.
Listener = Callable[[int, dict[str, Any]], None]


@dataclass
class LocalAgent:
    """One started agent and what it has told us that outlives it."""

    node_rank: int
    process: subprocess.Popen[bytes]
    wire: Wire
    exit_code: int | None = None
    #: when it said that it was done, and with which code
    finished: tuple[float, int] | None = None
    torchrun_pid: int | None = None
    rank_pids: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class AgentCommand:
    """How to start one agent: its arguments (before and after `--`) and its environment."""

    node_rank: int
    argv: Sequence[str]
    environment: dict[str, str]
    inherit_stdin: bool


class LocalNodes:
    """Starts the agents, relays between them, ends them. `run` returns when the last is gone."""

    def __init__(self, commands: Sequence[AgentCommand], grace: float, journal: Journal, listener: Listener) -> None:
        self._commands = commands
        self._grace = grace
        self._journal = journal
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self.agents: list[LocalAgent] = []
        self.cancelled_by: str | None = None
        self._ended_because = ""
        self._first_failure: float | None = None
        self._kill_at: float | None = None

    def start(self) -> None:
        processes.become_subreaper()
        self._catch_signals()
        for command in self._commands:
            self._start_agent(command)

    def run(self, every_turn: Callable[[], None]) -> None:
        """`every_turn` is called ten times a second: the view."""
        while any(agent.exit_code is None for agent in self.agents):
            for key, _ in self._selector.select(_TURN_S):
                key.data()
            for agent in self.agents:
                self._look_after(agent)
            self._end_the_others()
            every_turn()
        self._end_orphans(every_turn)

    def _start_agent(self, command: AgentCommand) -> None:
        ours, theirs = socket.socketpair()
        descriptor = theirs.fileno()
        own = ["--launcher-fd", str(descriptor), "--parent", str(os.getpid())]
        process = subprocess.Popen(
            [sys.executable, str(_AGENT), *own, *command.argv],
            env=command.environment,
            stdin=None if command.inherit_stdin else subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,  # Ctrl-C is for the launcher alone, which ends the job gently
        )
        theirs.close()
        agent = LocalAgent(command.node_rank, process, Wire(ours))
        self.agents.append(agent)
        self._selector.register(agent.wire, selectors.EVENT_READ, lambda: self._hear(agent))

    def _hear(self, agent: LocalAgent) -> None:
        for event in agent.wire.receive():
            match event.get("event"):
                case "agent-started":
                    agent.torchrun_pid = event.get("torchrun_pid")
                case "agent-finished":
                    agent.finished = (time.monotonic(), int(event["exit_code"]))
                case "rank-started":
                    agent.rank_pids.add(int(event["pid"]))
                case "rank-exited":
                    agent.rank_pids.discard(int(event.get("pid") or 0))
                    if event.get("exit_code") and not event.get("asked_to_stop"):
                        self._tell_others(agent, {"request": "exceptions"})
                case "death-dump":
                    self._tell_others(agent, {"request": "last-look", "folder": event["folder"]})
                case "stopping" if str(event.get("reason", "")).startswith("cancelled"):
                    self.stop(str(event["reason"]))
            self._listener(agent.node_rank, event)
        if agent.wire.closed:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(agent.wire)

    def _look_after(self, agent: LocalAgent) -> None:
        if agent.exit_code is not None:
            return
        code = agent.process.poll()
        if code is None and agent.finished and time.monotonic() - agent.finished[0] > _FROZEN_AGENT_S:
            code = agent.finished[1]  # its disk thread hangs in the kernel: nobody can collect it before the thaw
        if code is None:
            return
        self._hear(agent)
        agent.exit_code = code
        self._journal.note("agent-exited", node_rank=agent.node_rank, exit_code=agent.exit_code)
        if agent.exit_code != 0 and self._first_failure is None:
            self._first_failure = time.monotonic()

    def _end_the_others(self) -> None:
        if self._first_failure is not None and time.monotonic() - self._first_failure > _OTHERS_MAY_TAKE_S:
            self.tell_all({"request": "stop", "reason": "another node has failed"})
            self._first_failure = float("inf")
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            for agent in self.agents:
                if agent.exit_code is None:
                    agent.process.kill()
            self._kill_at = None

    def _end_orphans(self, every_turn: Callable[[], None]) -> None:
        """What an agent that was killed has left: torchrun (which was told to end) and ranks, by their known pids."""
        orphans = {pid for agent in self.agents for pid in (agent.torchrun_pid, *agent.rank_pids) if pid}
        deadline = time.monotonic() + self._grace
        told = False
        while left := orphans & set(processes.children(os.getpid())):
            processes.reap_adopted(set())
            last = time.monotonic() > deadline
            for pid in left if (last or not told) else ():
                processes.kill(pid, signal.SIGCONT)
                processes.kill_group(pid, signal.SIGKILL if last else signal.SIGTERM)
            told = True
            time.sleep(0.02)
            every_turn()

    # -- requests -------------------------------------------------------------------------------------------

    @property
    def living(self) -> list[int]:
        """The nodes whose agents can still answer."""
        return [agent.node_rank for agent in self.agents if agent.exit_code is None and agent.finished is None]

    @property
    def ending(self) -> bool:
        """Whether somebody has asked for the end, or a node has failed for good."""
        return self.cancelled_by is not None or self._ended_because != "" or self._first_failure is not None

    def end(self, because: str) -> None:
        """Gently, as a stop does; but it is no cancel."""
        self._ended_because = because
        self.tell_all({"request": "stop", "reason": because})

    def stop(self, by: str) -> None:
        """Gently; a second call ends the job at once."""
        if self.cancelled_by is None:
            self.cancelled_by = by
            self._journal.note("cancelled", by=by)
            self.tell_all({"request": "stop", "reason": by})
        else:
            self.tell_all({"request": "kill", "by": by})
            self._kill_at = time.monotonic() + 5.0

    def tell_all(self, request: dict[str, Any]) -> None:
        for agent in self.agents:
            agent.wire.send(request)

    def _tell_others(self, but: LocalAgent, request: dict[str, Any]) -> None:
        for agent in self.agents:
            if agent is not but:
                agent.wire.send(request)

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for signum in (*_STOP_SIGNALS, *_FORWARDED):
            # nohup's ignored SIGHUP stays ignored
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._signals(os.read(reader, 64)))

    def _signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _FORWARDED:
                self.tell_all({"request": "signal", "signal": number})
            else:
                self.stop(signal.Signals(number).name)
