"""Report where the clocks of two hosts do not decide which of their errors came first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from distdbg.evidence.run import HostClock, RunEvidence
from distdbg.model import CauseClass, Finding, Unknown
from distdbg.wording import name_ranks

#: Seconds. Hosts that run NTP agree within less; a log that leaves out its zone can be hours off.
_UNKNOWN_CLOCKS = 10.0
_CONSEQUENCES = (CauseClass.COMMUNICATION, CauseClass.VICTIM, CauseClass.OBSERVATION)


def undecided_first(evidence: RunEvidence, findings: Sequence[Finding]) -> Iterator[Unknown]:
    """For the first finding, and the next one of its class on another host: of times in logs, and of our own events if
    the clocks of nodes differ."""
    lead = findings[0] if findings else None
    if lead is None or lead.cause_class in _CONSEQUENCES or lead.first_seen is None:
        return
    if evidence.logs is not None:
        clocks = {clock.host: clock for clock in evidence.logs.clocks}
    elif evidence.clocks:
        clocks = {node.host: HostClock(node.host, 0.0, 0.0, 0) for node in evidence.nodes}
        clocks |= {clock.host: HostClock(clock.host, clock.ahead_s, clock.within_s, 1) for clock in evidence.clocks}
    else:
        return
    hosts = {rank.rank: rank.host for rank in evidence.ranks}
    where = _host(lead, hosts)
    for other in findings[1:]:
        there = _host(other, hosts)
        alike = other.cause_class is lead.cause_class and other.explained_by is None and other.severity == "error"
        if not alike or not there or not where or there == where or other.first_seen is None:
            continue
        apart = abs(other.first_seen - lead.first_seen)
        if apart <= _doubt(where, there, clocks):
            yield Unknown(
                f"whether {_who(lead, where)} or {_who(other, there)} failed first",
                f"their times are {apart:.1f} s apart, and the clocks of {where} and {there} are "
                + (
                    "known no better"
                    if _known(where, there, clocks)
                    else "not compared: no event is in the logs of both"
                ),
            )
        return


def _host(finding: Finding, hosts: Mapping[int, str]) -> str:
    found = {hosts.get(rank, "") for rank in finding.ranks} or set(finding.nodes)
    return found.pop() if len(found) == 1 else ""


def _known(one: str, other: str, clocks: Mapping[str, HostClock]) -> bool:
    return all(host in clocks and clocks[host].within is not None for host in (one, other))


def _doubt(one: str, other: str, clocks: Mapping[str, HostClock]) -> float:
    """How many seconds the difference of their times may be wrong."""
    if not _known(one, other, clocks):
        return _UNKNOWN_CLOCKS
    return sum(clocks[host].within or 0.0 for host in (one, other))


def _who(finding: Finding, host: str) -> str:
    ranks = name_ranks(finding.ranks) if finding.ranks else "a process"
    return f"{ranks} on {host}"
