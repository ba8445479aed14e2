"""A GPU that runs slower than it could: one such rank slows down all."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.checks._nodes import of_nodes
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="gpu-throttled",
        severity="warning",
        title="a GPU is throttled",
        meaning="The device has lowered its clocks for heat, a power brake or a hardware fault. Every collective waits "
        "for the slowest rank.",
        how_seen="NVML's clocks event reasons. A power cap is left out: it is where a busy GPU belongs.",
        remedy="Look at the node's cooling and power supply; leave it out until it has recovered.",
        source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
    ),
)
_BAD = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake", "reliability")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    if evidence.preflight is None:
        return
    for node, facts in evidence.preflight.each("gpus"):
        for gpu in facts.get("gpus", ()):
            reasons = [reason for reason in gpu.get("throttle") or () if reason in _BAD]
            if reasons:
                warm = f", at {gpu['temperature']} °C" if gpu.get("temperature") is not None else ""
                yield of_nodes(
                    DOCS[0], (node,), f"GPU {gpu['index']} of {node.name} is throttled: {', '.join(reasons)}{warm}"
                )
