"""A network card, its port or its cable: NCCL's own reports, laid side by side to see whose it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.logs.nccl import Fault
from distdbg.evidence.run import UNKNOWN_RANK, RankRecord, RunEvidence
from distdbg.model import CauseClass, Citation, Confidence, Finding


@rule("nic-fault", needs=("rank.nccl",))
def nic_fault(evidence: RunEvidence) -> Iterable[Finding]:
    everybody = (*evidence.ranks, *evidence.unattributed)
    told = [(rank, fault) for rank in everybody if rank.nccl for fault in rank.nccl.faults]
    if not told:
        return
    names = {rank.nccl.address: _host(rank) for rank in evidence.ranks if rank.nccl and rank.nccl.address}
    events = [(rank, fault) for rank, fault in told if not fault.peer]
    suspect, confidence = _suspect(told, events, names)
    ranks = tuple(sorted({rank.rank for rank, _ in told} - {UNKNOWN_RANK}))
    reporters = tuple(sorted({_host(rank) for rank, _ in told}))
    first, fault = (events or told)[0]
    place = f"{suspect}: " if suspect else ""
    whose = who(evidence, ranks) if ranks else "a process of unknown rank"
    hca = f" on {fault.hca}" if fault.hca else ""
    peer = f" from peer {names.get(fault.peer, fault.peer)}" if fault.peer else ""
    yield build_finding(
        "nic-fault",
        confidence=confidence,
        summary=f"{place}{whose} got a network error{hca}{peer}: {fault.what}",
        cause=_cause(told, suspect, names),
        ranks=ranks,
        nodes=(suspect,) if suspect else () if ranks else reporters,
        evidence=tuple(_citation(rank, fault) for rank, fault in _one_a_rank(told)[:4]),
        cause_class=CauseClass.KILLED_OR_OOM if confidence != "possible" else CauseClass.COMMUNICATION,
        first_seen=first.ended,
    )


_Told = list[tuple[RankRecord, Fault]]


def _suspect(told: _Told, events: _Told, names: Mapping[str, str]) -> tuple[str, Confidence]:
    """The end that all reports have in common; empty where two ends have."""
    if events:
        reporters = {_host(rank) for rank, _ in events}
        return (reporters.pop(), "certain") if len(reporters) == 1 else ("", "possible")
    ends: dict[str, set[int]] = defaultdict(set)
    for number, (rank, fault) in enumerate(told):
        ends[_host(rank)].add(number)
        ends[names.get(fault.peer, fault.peer)].add(number)
    common = [end for end, reports in ends.items() if len(reports) == len(told)]
    return (common[0], "likely") if len(common) == 1 else ("", "possible")


def _host(rank: RankRecord) -> str:
    return (rank.nccl.host if rank.nccl else "") or rank.host


def _cause(told: _Told, suspect: str, names: Mapping[str, str]) -> str:
    pairs = {(_host(rank), names.get(fault.peer, fault.peer)) for rank, fault in told if fault.peer}
    if suspect:
        return f"It is at one end of every report: {len(told)} of them, over {len(pairs) or 1} connections."
    shown = "; ".join(f"{host} and {peer}" for host, peer in sorted(pairs)[:4])
    return f"Which end it is cannot be told: the reports are between {shown or 'several hosts'}."


def _one_a_rank(told: _Told) -> _Told:
    return list({(rank.rank, rank.pid): (rank, fault) for rank, fault in reversed(told)}.values())[::-1]


def _citation(rank: RankRecord, fault: Fault) -> Citation:
    where = f"rank {rank.rank}" if rank.rank != UNKNOWN_RANK else rank.place
    return Citation(rank.nccl_path, fault.line or None, where, fault.text)
