"""Find agents that ended before they reported anything: their host lacks something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.errors import EXIT_LOST
from distdbg.evidence.exit_status import exit_status
from distdbg.evidence.run import RunEvidence
from distdbg.protocol.launcher_events import AgentExited


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
