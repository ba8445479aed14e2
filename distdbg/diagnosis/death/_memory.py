"""Was a SIGKILL for lack of memory? The kernel's messages, the control group's counter and Slurm's words can say."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.evidence.logs.kernel import MemoryKill, memory_kills
from distdbg.evidence.logs.slurm import said_of
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.growth import growth, since
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.model import Citation, Confidence
from distdbg.protocol.agent_events import Cgroup, Kernel
from distdbg.protocol.launcher_events import SlurmMemory

#: Growth by this share of its first level is worth a word, and so is a neighbour that is larger by this.
_GREW, _MORE = 0.1, 1.2
#: So many seconds after the kernel's kill the last of a large process is gone, at the latest.
_GONE_WITHIN = 60.0


@dataclass(frozen=True)
class OutOfMemory:
    confidence: Confidence
    how: str
    citation: Citation


def killed_for_memory(evidence: RunEvidence, failure: RankFailure) -> OutOfMemory | None:
    """None where nothing says that memory was the reason (which does not say that it was not)."""
    node = evidence.node_of(failure.rank)
    if failure.signal != signal.SIGKILL or node is None:
        return None
    kills = memory_kills(node.kernel)
    for kill in kills:
        if kill.pid == failure.rank.pid and node.kernel_has_own_pids:
            whose = "its control group" if kill.cgroup else "the machine"
            citation = Citation(node.events_path, Kernel.last_line(node.events), "kernel message", kill.text)
            return OutOfMemory("certain", f"the kernel killed it because {whose} had no memory left", citation)
    rise = oom_rise(node)
    if rise <= 0:
        return _by_slurm(evidence, failure.rank, node)
    named = kills if len(kills) >= rise else []
    if named and not any(_may_be(kill, failure.rank, evidence, node) for kill in named):
        return None
    before, after = node.cgroup["oom_kill"]
    how = f"the kernel's count of memory kills in its control group rose from {before} to {after}"
    if named:
        how += f", of {_whom(named)} by its messages: " + (
            "another process, unless it numbers this one so"
            if node.kernel_has_own_pids
            else "it numbers the processes of this container otherwise"
        )
    citation = Citation(node.events_path, Cgroup.last_line(node.events), "oom_kill", f"oom_kill: {before} -> {after}")
    enough = len(_killed(evidence, node)) <= rise
    certain_enough = enough and (not named or not node.kernel_has_own_pids)
    return OutOfMemory("likely" if certain_enough else "possible", how, citation)


def _may_be(kill: MemoryKill, rank: RankRecord, evidence: RunEvidence, node: NodeRecord) -> bool:
    """Whether a kill of another pid may have been this rank's, whose pid a container numbers otherwise.

    It is not where it was a loader's worker, where the rank ended long after it or before, or where the pid is known.
    """
    ranks = evidence.ranks if node.kernel_has_own_pids else ()
    known = {other.pid for other in ranks if other.node_rank == rank.node_rank}
    ended = None if kill.t is None or rank.ended is None else rank.ended - kill.t
    timely = ended is None or -1.0 <= ended <= _GONE_WITHIN
    return timely and kill.pid not in known and not kill.name.startswith("pt_data_")


def _whom(kills: Sequence[MemoryKill]) -> str:
    return ", ".join(f"process {kill.pid} ({kill.name})" for kill in kills[:3])


def _by_slurm(evidence: RunEvidence, rank: RankRecord, node: NodeRecord) -> OutOfMemory | None:
    """Its step's own words. A counter that is known and stayed speaks for another node, or makes them doubtful."""
    for number_of_line, event in SlurmMemory.among(evidence.events):
        if (event.t or 0.0) < (rank.started or 0.0):  # of an earlier step
            continue
        said = said_of([*map(str, event.lines)], node.node_rank, node.host, len(evidence.nodes))
        stayed = isinstance(node.cgroup.get("oom_kill"), list) and None not in node.cgroup["oom_kill"]
        if said is None or (stayed and not said.named):
            return None
        where = "on its node" if said.named else "on a node that it does not name"
        how = f"Slurm tells of a kill for memory {where}, and names no process"
        enough = len(_killed(evidence, node if said.named else None)) <= said.kills
        citation = Citation("events.jsonl", number_of_line, "Slurm's message", said.text)
        return OutOfMemory("likely" if enough and not stayed else "possible", how, citation)
    return None


def _killed(evidence: RunEvidence, node: NodeRecord | None) -> list[RankFailure]:
    """Ranks that a SIGKILL ended: of one node, or of all."""
    found = (f for f in failures(evidence) if f.signal == signal.SIGKILL)
    return [f for f in found if node is None or f.rank.node_rank == node.node_rank]


def oom_rise(node: NodeRecord) -> int:
    """By how much the control group's oom_kill counter rose; 0 where that is not known."""
    match node.cgroup.get("oom_kill"):
        case [int(before), int(after)]:
            return after - before
    return 0


def sizes(node: NodeRecord | None, rank: RankRecord) -> str:
    """How large the process was when it was last seen, and its limit, as sentences; empty where neither is known."""
    limit = node.cgroup.get("limit") if node else None
    facts = [f"Its last known size was {gib(rank.rss_bytes)}."] if rank.rss_bytes else []
    facts += [f"The limit is {gib(limit)}."] if isinstance(limit, int) else []
    return " ".join(facts)


def story(evidence: RunEvidence, rank: RankRecord) -> str:
    """What it was doing, how its memory came to this, and who of its node held more; what is not known is left out."""
    words = [f"It was in its {rank.phase} of step {rank.step}."] if rank.phase and rank.step else []
    points = evidence.memory_points(rank)
    values = [(p.step, p.anon, p.epochs) for p in points]
    if told := growth(values, 0, _GREW):
        words.append(f"It had grown by {told.pace} since step {since(values, told)}, and went on growing.")
    if len(points) > 1:
        first, last = points[0], points[-1]
        words.append(
            f"Its own memory was {gib(first.anon)} at step {first.step}, {gib(last.anon)} at step {last.step}."
        )
    beside = {other.rank: found[-1].anon for other in evidence.ranks
              if other.node_rank == rank.node_rank and (found := evidence.memory_points(other))}  # fmt: skip
    most = max(beside, key=lambda number: beside[number], default=rank.rank)
    if points and beside[most] > _MORE * points[-1].anon:
        words.append(f"Rank {most} of the same node held more, {gib(beside[most])}: look there, too.")
    return " ".join(words)


def why_not_known(node: NodeRecord | None) -> str:
    """Why the sender of a SIGKILL stays unknown, in words that end a sentence."""
    if node is None:
        return "no agent's record of its node was found"
    kills = memory_kills(node.kernel)
    kernel = "the kernel's messages name no memory kill"
    if node.kernel_unknown_because:
        kernel = f"the kernel's messages are not known ({node.kernel_unknown_because})"
    elif kills:
        none = "and none with this process's pid, which in a container is not the kernel's"
        otherwise = "and number the processes of this container otherwise"
        kernel = (f"the kernel's messages name a memory kill of {_whom(kills)} "
                  f"{none if node.kernel_has_own_pids else otherwise}")  # fmt: skip
    counter = "the count of memory kills in its agent's control group"
    match node.cgroup.get("oom_kill"):
        case [int(before), int(after)]:
            counter += f" stayed at {after}" if before == after else f" rose from {before} to {after}"
        case _:
            counter += " is not known"
            if because := node.cgroup.get("because"):
                counter += f" ({because})"
    return f"the kernel records no sender, {kernel}, and {counter}"
