"""The launcher disappeared: it recorded no end, and its agents ended the ranks because of that.

If no agent recorded that either, all of them may have been killed at once, or their file system took no more writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.waits.hang import is_hung
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.model import CauseClass, Citation, Finding
from distdbg.protocol.agent_events import LAUNCHER_GONE, AgentFinished, Stopping


@rule("launcher-lost")
def launcher_lost(evidence: RunEvidence) -> Iterator[Finding]:
    if evidence.end_is_recorded or evidence.launcher is None or evidence.launcher.alive:
        return
    launcher = evidence.launcher
    stops = [stop for node in evidence.nodes for stop in launcher_stops(node)]
    if not stops and (launcher.alive is None or _had_ended(evidence)):
        return
    found = build_finding(
        "launcher-lost",
        ranks=(),
        confidence="certain" if launcher.alive is False else "likely",
        summary=f"{launcher.name} disappeared before the job ended",
        cause=_what_followed(evidence, stops),
        evidence=tuple(citation for citation, _ in stops[:3]) or (Citation("job.json", None, where="launcher"),),
        cause_class=CauseClass.KILLED_OR_OOM,
        first_seen=min((t for _, t in stops if t is not None), default=None),
    )
    if not stops:
        summary = f"{launcher.name} is gone, and the end of the job is not recorded"
        found = replace(found, confidence="possible", summary=summary)
    if not stops or is_hung(evidence):  # a hang came first, and is the cause
        found = replace(found, severity="warning", cause_class=CauseClass.OBSERVATION)
    yield found


def _had_ended(evidence: RunEvidence) -> bool:
    """Whether all ranks had ended by themselves, so that the launcher had only to write that down."""
    agents = bool(evidence.nodes) and all(AgentFinished.is_in(node.events) for node in evidence.nodes)
    size = evidence.world_size
    by_themselves = all(rank.ended is not None and rank.asked_to_stop is None for rank in evidence.ranks)
    return agents or (size is not None and len(evidence.ranks) >= size and by_themselves)


def launcher_stops(node: NodeRecord) -> Iterator[tuple[Citation, float | None]]:
    """Yield where the agent of a node recorded that it lost the launcher, and when."""
    for line, stopping in Stopping.among(node.events):
        if stopping.reason == LAUNCHER_GONE:
            yield Citation(node.events_path, line, quote=f'"reason": "{LAUNCHER_GONE}"'), stopping.t


def _what_followed(evidence: RunEvidence, stops: list[tuple[Citation, float | None]]) -> str:
    if not stops:
        return "Either it was killed together with its agents, or the run directory could not be written any more."
    words = "It wrote no end of the job; what ended it is not recorded."
    if len(stops) == 1 and len(evidence.nodes) == 1:
        return f"{words} Its agent then ended the ranks."
    return f"{words} {len(stops)} of its {len(evidence.nodes)} agents then ended their ranks."
