"""A node's agent or its torchrun vanished, and with it the sight of its ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.exit_status import exit_status, signal_name
from distdbg.evidence.jsonl import number
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.model import CauseClass, Citation, Finding
from distdbg.protocol.agent_events import (
    LAUNCHER_GONE,
    PARENT_GONE,
    AgentFinished,
    CutOff,
    Killing,
    Stopping,
    TorchrunExited,
)
from distdbg.protocol.launcher_events import AgentExited, AgentsGone, Finished, NodeSilent, SlurmNodeFailure
from distdbg.wording import name_ranks


@rule("node-lost")
def node_lost(evidence: RunEvidence) -> Iterable[Finding]:
    silent = {event.node_rank: (line, event) for line, event in NodeSilent.among(evidence.events)}
    for node in evidence.nodes:
        if node.node_rank not in silent and (line := _slurms_word(evidence, node)):
            yield _failed_for_slurm(evidence, node, line)
        elif node.node_rank not in silent:
            # how torchrun and the agents of a cancelled job end is what was asked for
            yield from _ended_badly(evidence, node) if evidence.cancelled_by is None else ()
        elif not CutOff.is_in(node.events):
            found = _silent(evidence, node, *silent[node.node_rank])
            if evidence.cancelled_by is None or _came_first(evidence, found):
                yield found


def _came_first(evidence: RunEvidence, found: Finding) -> bool:
    """Slurm may notice sooner than we that a node is gone, and end the rest of the job: the silence came before."""
    asked = evidence.asked_to_end_at
    return asked is not None and found.first_seen is not None and found.first_seen < asked


def _ended_badly(evidence: RunEvidence, node: NodeRecord) -> Iterable[Finding]:
    gone = {exited.node_rank: exited for _, exited in AgentExited.among(evidence.events)}
    over = AgentsGone.is_in(evidence.events) or Finished.is_in(evidence.events)
    code = node.torchrun_exit_code
    lost = next((e for _, e in Stopping.among(node.events) if e.reason in (LAUNCHER_GONE, PARENT_GONE)), None)
    if code is not None and code < 0 and not (Stopping.is_in(node.events) or Killing.is_in(node.events)):
        yield _torchrun_killed(evidence, node, -code)
    elif lost is not None and over:
        yield _cut_from_launcher(evidence, node, lost, gone.get(node.node_rank))
    elif not node.events and not any(rank.pid or rank.from_log for rank in evidence.ranks):
        return  # nothing ever ran: launch-failed has the agent's last words
    elif not AgentFinished.is_in(node.events) and (node.node_rank in gone or over):
        exited = gone.get(node.node_rank)
        code = exit_status(exited.fields()) if exited is not None else None
        if _is_news(evidence, code):
            yield _agent_gone(evidence, node, code)


def _cut_from_launcher(
    evidence: RunEvidence, node: NodeRecord, stopping: Stopping, exited: AgentExited | None
) -> Finding:
    """The launcher lived on, and the agent heard no more of it: what carries its messages was ended."""
    what = "its parent process was killed" if stopping.reason == PARENT_GONE else "its connection to the launcher ended"
    said = f"What carried it reported: {exited.because}." if exited is not None and exited.because else ""
    summary = f"distdbg's agent on node {node.node_rank} ({node.host}) ended its ranks because {what}"
    line = Stopping.last_line(node.events)
    found = _finding(evidence, node, summary, said, Citation(node.events_path, line, quote=stopping.reason))
    return replace(found, first_seen=stopping.t or found.first_seen)


def _is_news(evidence: RunEvidence, code: int | None) -> bool:
    """A record that ends early although the agent ended by itself is a full disk, unless nothing else tells why."""
    return code is None or code < 0 or (code > 0 and not failures(evidence))


def _torchrun_killed(evidence: RunEvidence, node: NodeRecord, number_: int) -> Finding:
    cause = "Its ranks were ended after it. The kernel records no sender of a signal."
    line = TorchrunExited.last_line(node.events)
    quote = f'"exit_code": {node.torchrun_exit_code}'
    summary = f"torchrun on node {node.node_rank} ({node.host}) was killed by {signal_name(number_)}"
    return _finding(evidence, node, summary, cause, Citation(node.events_path, line, quote=quote))


def _silent(evidence: RunEvidence, node: NodeRecord, line: int | None, event: NodeSilent) -> Finding:
    seconds, because = event.silent_s or 0.0, event.because
    summary = f"node {node.node_rank} ({node.host}) was lost: nothing was heard of it for {seconds:.0f} s"
    quote = f'"because": "{because}"'
    cause = f"{because[:1].upper()}{because[1:]}."
    if not event.host_answers:
        cause += " Whether the host died or was cut off is not known."
    found = _finding(evidence, node, summary, cause, Citation("events.jsonl", line, quote=quote))
    t = event.t
    return replace(found, confidence="likely", first_seen=t - seconds if t is not None else found.first_seen)


def _slurms_word(evidence: RunEvidence, node: NodeRecord) -> int | None:
    """The line of the events that has it: Slurm has taken this node for failed."""
    for line, failure in SlurmNodeFailure.among(evidence.events):
        if node.host.partition(".")[0] in {str(host).partition(".")[0] for host in failure.hosts}:
            return line
    return None


def _failed_for_slurm(evidence: RunEvidence, node: NodeRecord, line: int) -> Finding:
    """Slurm noticed before us, and then ended the job: what its agents still did is what was asked for."""
    summary = f"node {node.node_rank} ({node.host}) was lost: Slurm found that it had failed, and ended the job"
    quote = f"srun: error: Node failure on {node.host}"
    found = _finding(evidence, node, summary, "What Slurm saw of it is in slurmctld's log.",
                     Citation("events.jsonl", line, quote=quote))  # fmt: skip
    asked = evidence.asked_to_end_at
    if asked is not None and evidence.cancelled_by == "SIGTERM":  # it is Slurm's, and comes of the failure
        seen = math.nextafter(asked, 0)
        found = replace(found, first_seen=min(seen, found.first_seen or seen))
    return replace(found, confidence="likely")


def _agent_gone(evidence: RunEvidence, node: NodeRecord, code: int | None) -> Finding:
    how = "ended without a last word"
    if code is not None and code < 0:
        how = f"was killed by {signal_name(-code)}"
    elif code:
        how = f"ended with exit code {code} in the middle"
    last = node.events[-1] if node.events else (None, {})
    quote = f'the last event is "{last[1].get("event", "")}"' if node.events else "no events"
    summary = f"distdbg's agent on node {node.node_rank} ({node.host}) {how}"
    unknown = [rank for rank in evidence.ranks if rank.node_rank == node.node_rank and rank.ended is None]
    cause = "What its ranks did after that is not known." if unknown else "Its ranks had ended before."
    found = _finding(evidence, node, summary, cause, Citation(node.events_path, last[0], quote=quote))
    if not unknown and evidence.ranks:
        found = replace(found, severity="warning", cause_class=CauseClass.OBSERVATION)
    return replace(found, confidence="certain" if code is not None and code < 0 else "likely")


def _was_lost(rank: RankRecord) -> bool:
    """Whether the rank had not ended by itself before its node was lost."""
    return rank.ended is None or rank.exit_code is None or rank.asked_to_stop is not None


def _finding(evidence: RunEvidence, node: NodeRecord, summary: str, cause: str, citation: Citation) -> Finding:
    ranks = tuple(r.rank for r in evidence.ranks if r.node_rank == node.node_rank and _was_lost(r))
    times = [t for _, e in node.events if (t := number(e, "t")) is not None]
    return build_finding(
        "node-lost",
        confidence="certain",
        summary=f"{summary}, and with it {name_ranks(ranks)}" if ranks else summary,
        cause=cause,
        ranks=ranks,
        nodes=(node.host,) if node.host else (),
        evidence=(citation,),
        cause_class=CauseClass.KILLED_OR_OOM,
        first_seen=max(times, default=None),
    )
