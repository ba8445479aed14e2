"""torchrun could not start the ranks of a node again, because another node had finished."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.model import Citation, Finding, fold_ranks
from distdbg.protocol.agent_events import AgentStarted, Stopping, TorchrunExited

#: Seconds. Without a restart torchrun ends within one of its last rank's end; it may take some on a busy machine.
_WAITED_S = 10.0


@rule("restart-blocked")
def restart_blocked(evidence: RunEvidence) -> Iterator[Finding]:
    finished = [node for node in evidence.nodes if _has_finished(evidence, node)]
    if evidence.is_superseded or not finished:
        return
    failed = {failure.rank.rank for failure in failures(evidence)}
    for node in evidence.nodes:
        ranks = [rank for rank in evidence.ranks if rank.node_rank == node.node_rank]
        ends = [rank.ended for rank in ranks if rank.ended is not None]
        if not _max_restarts(node) or len(ends) < len(ranks) or failed.isdisjoint(rank.rank for rank in ranks):
            continue
        exited = TorchrunExited.newest(node.events)
        if exited is None and (evidence.is_over is not False or Stopping.is_in(node.events)):
            continue
        waited_s = exited.t - max(ends) if exited is not None and exited.t is not None else None
        if exited is not None and (waited_s is None or waited_s < _WAITED_S):
            continue
        line = TorchrunExited.last_line(node.events) or AgentStarted.last_line(node.events)
        others = fold_ranks(other.node_rank for other in finished)
        how_long = "waits" if waited_s is None else f"waited for {waited_s:.0f} s"
        yield build_finding(
            "restart-blocked",
            confidence="likely",
            summary=f"torchrun on node {node.node_rank} ({node.host}) {how_long} to start its ranks again, but node "
            f"{others} had finished",
            cause="A restart needs all nodes. A node whose ranks have ended with exit code 0 does not join one: its "
            "torchrun waits for the others to end, and they wait for it, until a timeout of torchrun (300 s).",
            ranks=tuple(sorted(failed & {rank.rank for rank in ranks})),
            nodes=tuple(dict.fromkeys(other.host for other in (node, *finished))),
            evidence=(Citation(node.events_path, line),),
        )


def _has_finished(evidence: RunEvidence, node: NodeRecord) -> bool:
    ranks = [rank for rank in evidence.ranks if rank.node_rank == node.node_rank]
    return bool(ranks) and all(rank.own_exit_code == 0 and rank.asked_to_stop is None for rank in ranks)


def _max_restarts(node: NodeRecord) -> int:
    """The restarts that this node's torchrun may make, by its command line."""
    started = AgentStarted.newest(node.events)
    words = [str(word) for word in started.argv] if started is not None else []
    given = dict(pairwise(word for text in words for word in text.split("=", 1))).get("--max-restarts", "")
    return int(given) if given.isdecimal() and len(given) < 10 else 0
