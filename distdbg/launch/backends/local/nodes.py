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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.collect.machine import procfs
from distdbg.launch.backends.nodes import AgentSeen, AttemptStart, Nodes
from distdbg.launch.io import processes
from distdbg.launch.link.wire import Wire
from distdbg.protocol.requests import Request

if TYPE_CHECKING:
    from distdbg.launch.plan.job import NodePlan

_AGENT = Path(__file__).resolve().parents[2] / "agent" / "agent.py"
#: An agent that has said its last word and does not end within this time is held by a file system.
_FROZEN_AGENT_S = 15.0


@dataclass
class _LocalAgent:
    seen: AgentSeen
    process: subprocess.Popen[bytes]
    wire: Wire


class LocalNodes(Nodes):
    """Agents that are children of this process."""

    def __init__(self, start: AttemptStart) -> None:
        super().__init__(start)
        self._agents: list[_LocalAgent] = []

    @property
    def agents(self) -> list[AgentSeen]:
        return [agent.seen for agent in self._agents]

    def start(self) -> None:
        processes.become_subreaper()
        self._catch_signals()
        for node in self._start.plan.nodes:
            self._start_agent(node)

    def _start_agent(self, node: NodePlan) -> None:
        ours, theirs = socket.socketpair()
        descriptor = str(theirs.fileno())
        own = [*self._start.own, "--node-rank", str(node.node_rank), "--host", socket.gethostname()]
        if "--metrics-port" in own:  # the nodes of one machine cannot share a port
            own += ["--metrics-port", str(int(own[own.index("--metrics-port") + 1]) + node.node_rank)]
        environment = dict(os.environ) | {variable.name: variable.value for variable in node.environment}
        for name in node.unset:
            environment.pop(name, None)
        process = subprocess.Popen(
            [sys.executable, str(_AGENT), "--launcher-fd", descriptor, "--parent", str(os.getpid()), *own, "--",
             *node.torchrun],
            env=environment,
            stdin=None if self._start.plan.inherit_stdin else subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C is for the launcher alone, which ends the job gently
        )  # fmt: skip
        theirs.close()
        agent = _LocalAgent(AgentSeen(node.node_rank), process, Wire(ours))
        self._agents.append(agent)
        self._selector.register(agent.wire, selectors.EVENT_READ, lambda: self._hear(agent))

    def _hear(self, agent: _LocalAgent) -> None:
        for event in agent.wire.receive():
            self._take_event(agent.seen, event)
        if agent.wire.closed:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(agent.wire)

    def _look_after(self) -> None:
        for agent in self._agents:
            if agent.seen.gone:
                continue
            code, finished = agent.process.poll(), agent.seen.finished
            if code is None and finished and time.monotonic() - finished[0] > _FROZEN_AGENT_S:
                code = finished[1]  # its disk thread hangs in the kernel: nobody can collect it before the thaw
            if code is not None:
                self._hear(agent)
                self._ended(agent.seen, code)

    def _kill(self) -> None:
        for agent in self._agents:
            if not agent.seen.gone:
                agent.process.kill()

    def _end_orphans(self, every_turn: Callable[[], None]) -> None:
        """torchrun (which was asked to end) and ranks, by their known pids."""
        orphans = {pid for agent in self.agents for pid in (agent.torchrun_pid, *agent.rank_pids) if pid}
        deadline = time.monotonic() + self._start.grace
        torchrun_told = False
        while left := orphans & set(procfs.children(os.getpid())):
            processes.reap_adopted(set())
            last = time.monotonic() > deadline
            for pid in left if (last or not torchrun_told) else ():
                processes.kill(pid, signal.SIGCONT)
                processes.kill_group(pid, signal.SIGKILL if last else signal.SIGTERM)
            torchrun_told = True
            time.sleep(0.02)
            every_turn()

    def tell_all(self, request: Request, *, but: AgentSeen | None = None) -> None:
        for agent in self._agents:
            if agent.seen is not but:
                agent.wire.send(request.record())
