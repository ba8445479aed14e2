"""The hosts live and do not hear each other; or all ranks have begun an operation that none finishes."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import citations, since, waited
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Citation, Finding
from distdbg.protocol.agent_events import CutOff
from distdbg.protocol.launcher_events import NodeSilent


@rule("network-cut")
def network_cut(evidence: RunEvidence) -> Iterable[Finding]:
    yield from _cut_off(evidence)
    hang = hang_of(evidence)
    if hang is None or not hang.stands or hang.culprits or hang.circles or hang.mismatch is not None:
        return
    for wait in hang.complete:
        if wait.sequence is None or not hang.has_all_members(wait) or (wait.on_device and not wait.started):
            continue
        yield build_finding(
            "network-cut",
            ranks=(),
            confidence="possible",
            summary=f"{who(evidence, wait.waiting)} wait in {wait.what}, which nobody is missing from",
            cause=waited(evidence, hang, (wait,)),
            evidence=citations(hang, (), wait.waiting),
            cause_class=CauseClass.STUCK,
            first_seen=since(hang, (wait,)),
        )


def _cut_off(evidence: RunEvidence) -> Iterable[Finding]:
    """Both sides wrote that they do not hear the other: the node lives."""
    silent = {event.node_rank: (line, event) for line, event in NodeSilent.among(evidence.events)}
    for node in evidence.nodes:
        told = next((line for line, _ in CutOff.among(node.events)), None)
        if told is None or node.node_rank not in silent:
            continue
        line, event = silent[node.node_rank]
        seconds, t = event.silent_s or 0.0, event.t
        ranks = tuple(r.rank for r in evidence.ranks if r.node_rank == node.node_rank)
        yield build_finding(
            "network-cut",
            confidence="certain",
            summary=f"node {node.node_rank} ({node.host}) was cut off from the others: both sides live, and for "
            f"{seconds:.0f} s neither heard the other",
            cause=f"{event.because.capitalize()}; its agent could not reach the launcher either.",
            remedy="Look at the network of that node (link, switch, firewall); leave it out and resume from the last "
            "checkpoint.",
            ranks=ranks,
            nodes=(node.host,),
            evidence=(
                Citation("events.jsonl", line, quote='"event": "node-silent"'),
                Citation(node.events_path, told, quote='"event": "cut-off"'),
            ),
            cause_class=CauseClass.KILLED_OR_OOM,
            first_seen=t - seconds if t is not None else None,
        )
