"""The process that launched a run, and its events: the log has those of all attempts and starts of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.errors import EXIT_LOST
from distdbg.evidence.exit_status import exit_status
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.protocol.agent_events import Stopping
from distdbg.protocol.launcher_events import AgentExited, AgentsGone, AttemptBegun, Cancelled, Launched


@dataclass(frozen=True)
class Launcher:
    """`alive` is None if it is not known; `because` is the reason."""

    pid: int | None
    host: str
    alive: bool | None
    because: str = ""

    @property
    def name(self) -> str:
        """`the launcher (pid 123 on node1)`."""
        return "the launcher" if self.pid is None else f"the launcher (pid {self.pid} on {self.host})"


Events = tuple[tuple[int, Mapping[str, Any]], ...]


def events_of_last_start(events: Events) -> Events:
    first = Launched.last_line(events) or 0
    return tuple(pair for pair in events if pair[0] >= first)


def events_of_attempt(events: Events, attempt: int) -> Events:
    """Return the events from the beginning of the attempt to the beginning of the next one.

    The first attempt after a start of the launcher includes the events of that start.
    """
    begun = [(line, event.attempt) for line, event in AttemptBegun.among(events)]
    first = next((line for line, number in begun if number == attempt), None)
    if first is None:
        return ()
    launched = [line for line, _ in Launched.among(events)]
    end = min((line for line in (*launched, *(line for line, _ in begun)) if line > first), default=None)
    start = max((line for line in launched if line < first), default=first)
    if any(start < line < first for line, _ in begun):
        start = first
    return tuple(pair for pair in events if pair[0] >= start and (end is None or pair[0] < end))


def marks_attempts(events: Events) -> bool:
    """Whether the launcher wrote where attempts begin. Older versions did not."""
    return AttemptBegun.is_in(events)


def find_cancel(events: Events, nodes: Iterable[NodeRecord]) -> str | None:
    """Return what asked for the end of the job before anything had failed: SIGINT, SIGTERM, `cancelled by …`."""
    for _, cancelled in Cancelled.among(events):
        return cancelled.by or "somebody"
    for _, gone in AgentsGone.among(events):
        if gone.cancelled_by:
            return gone.cancelled_by
    for node in nodes:
        for _, stopping in Stopping.among(node.events):
            return (stopping.reason or "somebody") if stopping.is_cancel else None
    return None


@dataclass(frozen=True)
class BrokenAgent:
    """`exit_code` is negative where a signal ended it, `said` are its last words, `line` is in events.jsonl."""

    node_rank: int
    host: str
    exit_code: int
    said: str
    line: int
    t: float | None


def broken_agents(evidence: RunEvidence) -> Iterator[BrokenAgent]:
    """The broken agents in the order in which the launcher saw them end; none of a job that was cancelled."""
    reporting = {node.node_rank for node in evidence.nodes if node.events}
    nodes = {node.node_rank: node for node in evidence.nodes}
    for line, event in AgentExited.among(evidence.events) if evidence.cancelled_by is None else ():
        code = exit_status(event.fields())
        if event.node_rank not in reporting and code and code != EXIT_LOST:
            node = nodes.get(event.node_rank)
            said = event.because or (node.agent_log.rstrip().rpartition("\n")[2] if node is not None else "")
            host = event.host or (node.host if node is not None else "")
            yield BrokenAgent(event.node_rank, host, code, said, line, event.t)
