"""The nodes' clocks differ by more than the network's round trip explains."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.nodes._nodes import of_nodes
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("clock-skew")
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
