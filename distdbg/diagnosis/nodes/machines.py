"""Check each node before a job: its clock, room on disks, limits, and permission to look into a rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.node_findings import looks, node_finding, together
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.node_clocks import ClockOffset
from distdbg.evidence.host.preflight import names_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding, Severity
from distdbg.wording import plural, size

#: A smaller offset does no harm: a synchronized clock stays within milliseconds.
_CLOCK_SKEW_S = 0.5
#: torch's dynamic rendezvous drops a node after three heartbeats of 5 s, whose times are by the clock of each node.
_RENDEZVOUS_LIMIT_S = 15.0


@rule("clock-skew", needs=("clocks", "preflight"))
def clock_skew(evidence: RunEvidence) -> Iterator[Finding]:
    """The nodes' clocks differ by more than the network's round trip explains."""
    for clock in evidence.clocks:
        if abs(clock.ahead_s) > _CLOCK_SKEW_S:
            yield _skew_of_a_run(clock)
    preflight = evidence.preflight
    if preflight is None:
        return
    for node in preflight.answered:
        for meeting in node.met:
            way = meeting.by_address
            if meeting.to != preflight.master or not way.ok or abs(way.offset) - way.rtt / 2 <= _CLOCK_SKEW_S:
                continue
            ours = "behind" if way.offset > 0 else "ahead of"
            words = f"{abs(way.offset):.2f} s {ours} {meeting.to}'s (± {way.rtt * 500:.2g} ms)"
            yield node_finding("clock-skew", (node,), f"the clock of {node.name} is {words}")


def _skew_of_a_run(clock: ClockOffset) -> Finding:
    side = "ahead of" if clock.ahead_s > 0 else "behind"
    apart = f"{abs(clock.ahead_s):,.2f} s {side} the launcher's, or up to {clock.within_s:.2g} s more"
    cause = (
        "In this report the times of that node are corrected by this. Its files, the lines that its ranks print and "
        "quotes have the times of its own clock."
    )
    if abs(clock.ahead_s) > _RENDEZVOUS_LIMIT_S:
        cause += (
            " torchrun's c10d rendezvous takes a node that is so far behind another for dead: it may fail, or start "
            "the ranks of the other nodes alone."
        )
    return build_finding(
        "clock-skew",
        (),
        f"the clock of node {clock.node_rank} ({clock.host}) is {apart}",
        cause,
        confidence="certain",
        nodes=(clock.host,) if clock.host else (),
        evidence=(Citation("events.jsonl", clock.line, "node-clock"),),
    )


_MB, _GB = 10**6, 10**9
#: of -> (an error below, a warning below), in bytes. Docker's /dev/shm has 64 MiB.
_ROOM = {
    "runs": (100 * _MB, _GB),
    "shared memory": (16 * _MB, 128 * _MB),
    "temporary files": (16 * _MB, 200 * _MB),
}
_INODES = (20, 1000)


@rule("disk-low", "folder-not-shared", needs=("preflight",))
def disk_low(evidence: RunEvidence) -> Iterator[Finding]:
    """There is no room where a job writes: the folder of its runs, /dev/shm, the temporary folder."""
    low = (
        ((str(place["path"]), severity, words), node)
        for node, facts in looks(evidence, "disk")
        for place in facts.get("places", ())
        for severity, words in _low_room(place)
    )
    for (path, severity, words), nodes in together(low):
        yield node_finding("disk-low", nodes, f"{path} on {names_of(nodes)} {words}", severity=severity)
    apart = [node for node, facts in looks(evidence, "disk") if facts.get("sees_token") is False]
    if apart:
        verb = plural("does", apart)
        words = f"{names_of(apart)} {verb} not see the folder that runs go to"
        yield node_finding("folder-not-shared", apart, words)


def _low_room(place: Mapping[str, Any]) -> Iterator[tuple[Severity, str]]:
    if place.get("because"):
        yield "error", f"cannot be used: {place['because']}"
        return
    of = str(place["of"])
    error, warning = _ROOM[of]
    free, inodes = int(place["free"]), int(place["inodes_free"])
    if free < warning:
        words = f"has {size(free)} left of {size(int(place['total']))} ({of})"
        yield ("error" if free < error else "warning"), words
    if 0 <= inodes < _INODES[1] and place["inodes"]:  # some file systems count none
        words = f"has {inodes} inodes left of {place['inodes']} ({of})"
        yield ("error" if inodes < _INODES[0] else "warning"), words


_FEWEST_LOCKED_BYTES = 64 << 20
_FEWEST_FILES = 1024
_FEWEST_PROCESSES = 512


@rule("limits-low", needs=("preflight",))
def limits_low(evidence: RunEvidence) -> Iterator[Finding]:
    """Limits of the shell or the scheduler that a job would run into."""
    low = ((words, node) for node, facts in looks(evidence, "limits") for words in _low_limits(facts))
    for words, nodes in together(low):
        yield node_finding("limits-low", nodes, f"a job on {names_of(nodes)} {words}")


def _low_limits(facts: Mapping[str, Any]) -> Iterator[str]:
    soft = {name: int(pair[0]) for name, pair in facts.get("limits", {}).items()}
    if facts.get("rdma") and not facts.get("root") and 0 <= soft.get("memlock", -1) < _FEWEST_LOCKED_BYTES:
        yield f"may lock {size(soft['memlock'])} of memory, with RDMA devices there"
    if 0 <= soft.get("nofile", -1) < _FEWEST_FILES:
        yield f"may open {soft['nofile']} files a process"
    if not facts.get("root") and 0 <= soft.get("nproc", -1) < _FEWEST_PROCESSES:
        yield f"may have {soft['nproc']} processes and threads a user"


@rule("ptrace-denied", needs=("preflight",))
def ptrace_denied(evidence: RunEvidence) -> Iterator[Finding]:
    """Nobody could look into a rank on this node when it hangs."""
    denied = ((str(facts["because"]), node) for node, facts in looks(evidence, "ptrace") if facts.get("because"))
    for because, nodes in together(denied):
        summary = f"a rank on {names_of(nodes)} could not be looked into: {because}"
        yield node_finding("ptrace-denied", nodes, summary)
