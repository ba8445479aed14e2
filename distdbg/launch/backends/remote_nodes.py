"""Agents on other hosts, behind the standard streams of their carriers: one srun for all, or one ssh each.

srun's (ssh's) own connection carries requests out and events back: the agents poll no shared file, whatever their
number. Only the launcher looks at `control`.
"""

from __future__ import annotations

import contextlib
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from distdbg.errors import EXIT_LOST, CannotStart
from distdbg.evidence import jsonl
from distdbg.launch.backends.carriers import Carrier, Running, end_carriers
from distdbg.launch.backends.nodes import AgentSeen, AttemptStart, Nodes
from distdbg.launch.io.control import ControlWatcher
from distdbg.launch.link.liveness import (
    OPENS_WITHIN_S,
    PING_EVERY_S,
    REFUSED,
    SILENT_AFTER_S,
    ClockBounds,
    LivenessPort,
    connect_all,
    own_addresses,
)
from distdbg.launch.plan.job import FIRST_NODE, FIRST_PORT
from distdbg.launch.plan.quick_preflight import judged, record_looks
from distdbg.protocol.agent_events import DeathDump
from distdbg.protocol.launcher_events import AgentSilent, NodeClock, NodeSilent
from distdbg.protocol.message import Event
from distdbg.protocol.requests import Cancel, Listen, Ping, Reach, Request, StartAgent, read_request

#: From the first agent that is there to the last: prologs and slow file systems included.
_ALL_HERE_WITHIN_S = 90.0
#: While they come up, preflight.json is written this often: of 1,000 nodes it has 2 MB.
_RECORD_LOOKS_EVERY_S = 1.0
_ANSWERS_WITHIN_S = 20.0
#: Longest silence where it is not known whether the host answers, or where only its agent is still waited for.
_UNKNOWN_FOR_S = 60.0
_ASKED_AGAIN_S = 10.0
#: After the last agent's last word its carrier ends by itself.
_CARRIER_ENDS_S = 10.0


@dataclass(eq=False)
class _RemoteAgent:
    seen: AgentSeen
    carrier: Running
    host: str
    here: dict[str, Any] | None = None
    last_message: float = 0.0
    #: the address and port that could be reached at the start
    endpoint: tuple[str, int] | None = None
    #: during a silence: when a connection was tried, and why it failed
    asked: float | None = None
    shut: str | None = None
    reported: bool = False
    clock: ClockBounds = field(default_factory=ClockBounds)


class RemoteNodes(Nodes):
    """`environment` goes with the orders to all agents; the plan's own overrides it. `journal_events` makes events for
    the journal from the carriers' standard errors. `start` raises CannotStart."""

    def __init__(
        self,
        start: AttemptStart,
        carriers: Sequence[Carrier],
        environment: Mapping[str, str],
        journal_events: Callable[[Sequence[str]], Iterable[Event]] | None = None,
    ) -> None:
        super().__init__(start)
        self._carriers = carriers
        self._environment = environment
        self._journal_events = journal_events
        self._running: list[Running] = []
        self._agents: dict[int, _RemoteAgent] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._started = False
        self._recorded = 0.0
        self._ping_at = 0.0
        self._all_ended: float | None = None

    @property
    def agents(self) -> list[AgentSeen]:
        return [agent.seen for agent in self._agents.values()]

    # -- the start ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._catch_signals()
        self._liveness = LivenessPort()
        self._control = ControlWatcher(self._start.run.control)
        self._selector.register(self._control.wake, selectors.EVENT_READ, self._relay)
        for carrier in self._carriers:
            running = Running(carrier)
            now = time.monotonic()
            for node, host in zip(carrier.nodes, carrier.hosts, strict=True):
                self._agents[node] = _RemoteAgent(AgentSeen(node), running, host, last_message=now)
            self._running.append(running)
            self._selector.register(running.wire, selectors.EVENT_READ, partial(self._hear, running))
        try:
            self._wait_for_all()
            write = self._start.journal.write_whole
            for sentence in judged(self._start.run, self._start.plan.place.on, self._looked(), write=write):
                self._start.say(sentence)
            request = self._orders(*self._find_meeting())
        except CannotStart:
            self._kill()
            self._record_looks()
            raise
        self._started = True
        self.tell_all(request)
        self._try_ports()

    def _looked(self) -> dict[str, Any]:
        return {a.host: a.here.get("looked", {}) for _, a in sorted(self._agents.items()) if a.here}

    def _record_looks(self) -> None:
        missing = [agent.host for agent in self._agents.values() if agent.here is None]
        write = self._start.journal.write_whole
        record_looks(self._start.run, self._start.plan.place.on, self._looked(), missing, write=write)
        self._recorded = time.monotonic()

    def _orders(self, first: str, port: int) -> StartAgent:
        """The same for all nodes: each fills in what is its own. They meet at `first`, an address of the first node."""
        plan = self._start.plan
        node, shown = plan.nodes[0], f"[{first}]" if ":" in first else first
        return StartAgent(
            own=list(self._start.own),
            torchrun=[word.replace(FIRST_NODE, shown).replace(FIRST_PORT, str(port)) for word in node.torchrun],
            environment={**self._environment} | {variable.name: variable.value for variable in node.environment},
            cwd=str(plan.place.container.folder if plan.place.container else Path.cwd()),
            unset=list(node.unset),
            address=first,
            endpoints=[(own, self._liveness.port) for own in own_addresses()],
        )

    def _relay(self) -> None:
        """Requests in the run's control file: one reader for all agents of a shared file system."""
        for record in self._control.requests():
            request = read_request(record, -1)
            if self._started and request is not None:
                self.tell_all(request)
            elif isinstance(request, Cancel):
                self.cancelled_by = request.by or "cancelled"

    def _wait_for_all(self) -> None:
        def missing() -> list[_RemoteAgent]:
            return [agent for agent in self._agents.values() if agent.here is None]

        self._turn_until(lambda: not missing(), _ALL_HERE_WITHIN_S, "agents to come up")
        if absent := missing():
            raise CannotStart(
                f"{_names(absent)} did not come up within {_ALL_HERE_WITHIN_S:g} s: {absent[0].carrier.last_words()}",
                "Leave the node out, or look at its daemon's log.",
            )
        blind = [agent for agent in self._agents.values() if agent.here and not agent.here["sees_run"]]
        if blind:
            raise CannotStart(
                f"the run directory is not seen on {_names(blind)}: it is not on a file system that the nodes share",
                "Name a directory that all nodes see with --run-dir.",
            )

    def _find_meeting(self) -> tuple[str, int]:
        """An address of the first node that all others reach, and a free port there; who reaches none is named."""
        first, others = self._agents[0], [agent for node, agent in self._agents.items() if node != 0]
        addresses = list(first.here["addresses"]) if first.here else []
        self._ask([first], Listen(port=self._start.plan.place.port, to=0))
        port = int(self._answers[0]["port"])
        if not others:
            return addresses[0] if addresses else "127.0.0.1", port
        self._ask(others, Reach(addresses=addresses, port=port), but=first)
        why_not = {agent: dict(self._answers[agent.seen.node_rank]["why_not"]) for agent in others}
        for address in addresses:
            if all(answers.get(address) is None for answers in why_not.values()):
                return address, port
        far = [agent for agent, answers in why_not.items() if all(answers.values())] or others
        tried = ", ".join(f"{address}: {why_not[far[0]].get(address) or 'reached'}" for address in addresses)
        raise CannotStart(
            f"{_names(far)} cannot reach {first.host} on port {port} ({tried or 'it has no address'})",
            "Look at the network and firewall between them; `distdbg preflight` tests every pair.",
        )

    def _ask(self, agents: Sequence[_RemoteAgent], request: Request, *, but: _RemoteAgent | None = None) -> None:
        self._answers.clear()
        self.tell_all(request, but=but.seen if but is not None else None)
        wanted = {agent.seen.node_rank for agent in agents}
        self._turn_until(lambda: wanted <= self._answers.keys(), _ANSWERS_WITHIN_S, "agents to answer")
        if silent := [agent for agent in agents if agent.seen.node_rank not in self._answers]:
            raise CannotStart(
                f"{_names(silent)} came up and then did not answer for {_ANSWERS_WITHIN_S:g} s",
                "Look at the load and the network of that host.",
            )

    def _turn_until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            for key, _ in self._selector.select(0.1):
                key.data()
            if self.cancelled_by is not None:
                raise CannotStart(f"{self.cancelled_by} while waiting for the {what}", "Nothing ran.")
            ended = next((running for running in self._running if running.process.poll() is not None), None)
            if ended is not None and not done():
                self._hear(ended)
                code, program = ended.process.returncode, Path(ended.carrier.argv[0]).name
                carried = [agent for agent in self._agents.values() if agent.carrier is ended]
                missing = [agent for agent in carried if agent.here is None] or carried
                raise CannotStart(
                    f"{program} ended with exit code {code} before the agents were up on {_names(missing)}: "
                    f"{ended.last_words()}",
                    ended.carrier.advice,
                )

    # -- while it runs --------------------------------------------------------------------------------------

    def _hear(self, running: Running) -> None:
        for message in running.wire.receive():
            agent = self._agents.get(message["node"])
            if agent is not None and agent.carrier is running:
                agent.last_message, agent.asked, agent.shut, agent.reported = time.monotonic(), None, None, False
                self._said(agent, message["event"])
        if running.wire.closed:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(running.wire)

    def _said(self, agent: _RemoteAgent, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "pong":
                self._compare_clocks(agent, event)
            case "here":
                agent.here, agent.host = event, str(event["host"])
                if time.monotonic() - self._recorded > _RECORD_LOOKS_EVERY_S:
                    self._record_looks()
            case "place" | "reached":
                self._answers[agent.seen.node_rank] = event
            case "agent-died":
                self._ended(agent.seen, int(event["exit_code"]), host=agent.host)
            case _:
                self._take_event(agent.seen, event)

    def _compare_clocks(self, agent: _RemoteAgent, pong: dict[str, Any]) -> None:
        asked, answer = jsonl.number(pong, "asked"), jsonl.number(pong, "t")
        if asked is not None and answer is not None and agent.clock.answered(asked, answer, time.time()):
            node, bounds = agent.seen.node_rank, agent.clock
            event = NodeClock(node_rank=node, host=agent.host, least_s=bounds.least_s, most_s=bounds.most_s)
            self._start.journal.note(event)

    def _try_ports(self) -> None:
        """Once, in a thread: a port that cannot be reached now (a firewall) says nothing later about a silent agent."""

        def try_all() -> None:
            endpoints = {
                (str(address), int(agent.here["liveness_port"])): agent
                for agent in self._agents.values()
                if agent.here
                for address in agent.here["addresses"]
            }
            for endpoint, why in connect_all(endpoints).items():
                if why is None:
                    endpoints[endpoint].endpoint = endpoints[endpoint].endpoint or endpoint

        threading.Thread(target=try_all, name="endpoints", daemon=True).start()

    def _look_after(self) -> None:
        now = time.monotonic()
        if now >= self._ping_at:
            self.tell_all(Ping(t=time.time()))
            self._ping_at = now + PING_EVERY_S
        for running in self._running:
            if running.process.poll() is None:
                continue
            self._hear(running)
            for agent in self._agents.values():
                if agent.carrier is not running or agent.seen.gone:
                    continue
                if agent.seen.finished:
                    self._ended(agent.seen, agent.seen.finished[1])
                else:
                    code, said = running.process.returncode or EXIT_LOST, running.last_words()
                    self._ended(agent.seen, code, host=agent.host, because=said)
        for agent in self._agents.values():
            if not agent.seen.gone and agent.seen.finished is None and now - agent.last_message > SILENT_AFTER_S:
                self._look_at_silent(agent, now)
        self._close_carriers(now)

    def _look_at_silent(self, agent: _RemoteAgent, now: float) -> None:
        """A host that accepts no connection ends the job; an agent that is only stopped does not.

        Its ranks may train on without it. Only when all others have said their last words is it not waited for.
        """
        if agent.asked is None or now - agent.asked > _ASKED_AGAIN_S:
            agent.asked = now
            if agent.endpoint is not None:
                threading.Thread(target=_connect, args=(agent, agent.endpoint), name="connect", daemon=True).start()
            return
        silent = now - agent.last_message
        if agent.endpoint is not None and agent.shut is not None:
            why = f"{agent.endpoint[0]}: {agent.shut}"
            if agent.shut == REFUSED:
                self._lose(agent, silent, f"its host answers, and the agent has ended ({why})", host_answers=True)
            else:
                self._lose(agent, silent, f"its host does not answer either ({why})", host_answers=False)
        elif agent.endpoint is None:
            if silent > _UNKNOWN_FOR_S:
                self._lose(agent, silent, "whether its host answers is not known", host_answers=None)
        elif now - agent.asked > OPENS_WITHIN_S:
            self._bear(agent, silent)

    def _bear(self, agent: _RemoteAgent, silent_s: float) -> None:
        because = "its host answers: the agent is stopped (SIGSTOP), or a file system or memory holds it up"
        others = [a.seen for a in self._agents.values() if a is not agent]
        if others and all(seen.gone or seen.finished for seen in others) and silent_s > _UNKNOWN_FOR_S:
            self._lose(agent, silent_s, because, host_answers=True)
        elif not agent.reported:
            agent.reported = True
            where = f"node {agent.seen.node_rank} ({agent.host})"
            self._start.say(f"{where}: no message for {silent_s:.0f} s, but {because}; its ranks are left alone")
            self._start.journal.note(AgentSilent(node_rank=agent.seen.node_rank, host=agent.host, silent_s=silent_s))

    def _lose(self, agent: _RemoteAgent, silent_s: float, because: str, *, host_answers: bool | None) -> None:
        self._start.say(f"node {agent.seen.node_rank} ({agent.host}) is lost: silent for {silent_s:.0f} s, {because}")
        node = agent.seen.node_rank
        event = NodeSilent(
            node_rank=node, host=agent.host, silent_s=silent_s, because=because, host_answers=host_answers
        )
        self._start.journal.note(event)
        self._ended(agent.seen, EXIT_LOST, host=agent.host, because=because)
        self._take_event(
            agent.seen,
            DeathDump(folder=str(self._start.run.attempt(self._start.attempt).dump("death"))).record(time.time()),
        )

    def _close_carriers(self, now: float) -> None:
        """All agents have said their last words, or are lost: what carries them ends by itself, or is ended."""
        if not all(agent.seen.gone or agent.seen.finished for agent in self._agents.values()):
            return
        self._all_ended = self._all_ended or now
        lost = any(agent.seen.gone for agent in self._agents.values())
        if now - self._all_ended > (_CARRIER_ENDS_S / 2 if lost else _CARRIER_ENDS_S):
            self._kill()

    # -- the end --------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        end_carriers(self._running)

    def _end_orphans(self, every_turn: Callable[[], None]) -> None:
        """Each agent's keeper ends them on its own host; here only carriers can be left."""
        every_turn()
        if any(running.process.poll() is None for running in self._running):
            self._kill()
        if self._journal_events is not None:
            for event in self._journal_events([running.said() for running in self._running]):
                self._start.journal.note(event)

    def tell_all(self, request: Request, *, but: AgentSeen | None = None) -> None:
        record = request.record(None if but is None else but.node_rank)
        for running in self._running:
            running.wire.send(record)


def _connect(agent: _RemoteAgent, endpoint: tuple[str, int]) -> None:
    agent.shut = connect_all([endpoint])[endpoint]


def _names(agents: Sequence[_RemoteAgent]) -> str:
    names = [agent.host or f"node {agent.seen.node_rank}" for agent in agents]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
