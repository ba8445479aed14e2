"""The nodes' clocks differ by more than the network's round trip explains."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._nodes import of_nodes
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="clock-skew",
        severity="warning",
        title="the nodes' clocks differ",
        meaning="Logs of different nodes cannot be put in order by their times, files look newer than they are, and "
        "from minutes on tickets and certificates are refused (munge, and Slurm with it, after five).",
        how_seen="Sixteen round trips between the first node and each other: the difference of the clocks, right to "
        "half of the fastest one.",
        remedy="Look at chrony or ntpd on the node: `timedatectl`, `chronyc tracking`.",
        source="https://www.rfc-editor.org/rfc/rfc5905",
    ),
)
#: Less disturbs nobody: a clock that is disciplined stays within milliseconds.
_SECONDS = 0.5


def check(evidence: RunEvidence) -> Iterator[Finding]:
    preflight = evidence.preflight
    if preflight is None:
        return
    for node in preflight.answered:
        for meeting in node.met:
            way = meeting.by_address
            if meeting.to != preflight.master or not way.ok or abs(way.offset) - way.rtt / 2 <= _SECONDS:
                continue
            ours = "behind" if way.offset > 0 else "ahead of"
            words = f"{abs(way.offset):.2f} s {ours} {meeting.to}'s (± {way.rtt * 500:.2g} ms)"
            yield of_nodes(DOCS[0], (node,), f"the clock of {node.name} is {words}")
