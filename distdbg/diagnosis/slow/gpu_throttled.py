"""Detect a GPU that was throttled: one such rank slows down all."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.node_findings import looks, node_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.gpus import STEADY
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.model import Citation, Finding
from distdbg.wording import name_ranks

#: Of the looks at a device.
_SHARE = 0.25
#: NVML sets this bit beside that of the hardware's own reason, which says more.
_ANY_HARDWARE = "hardware slowdown"
_BAD = (_ANY_HARDWARE, "software thermal slowdown", "hardware thermal slowdown", "power brake", "reliability")


@rule("gpu-throttled", needs=("node.gpus", "preflight"))
def gpu_throttled(evidence: RunEvidence) -> Iterator[Finding]:
    for record in evidence.nodes:
        yield from _while_it_ran(record)
    for node, facts in looks(evidence, "gpus"):
        for gpu in facts.get("gpus", ()):
            reasons = [reason for reason in gpu.get("throttle") or () if reason in _BAD]
            if reasons:
                warm = f", at {gpu['temperature']} °C" if gpu.get("temperature") is not None else ""
                words = f"GPU {gpu['index']} of {node.name} is throttled: {', '.join(reasons)}{warm}"
                yield node_finding("gpu-throttled", (node,), words)


def _while_it_ran(node: NodeRecord) -> Iterator[Finding]:
    for gpu in node.gpus:
        bad = {reason: slowed for reason, slowed in gpu.slowed.items() if reason in _BAD}
        reason = max(bad, key=lambda word: (bad[word].times, word != _ANY_HARDWARE), default="")
        if not bad or bad[reason].times < max(STEADY, _SHARE * gpu.looks):
            continue
        whose = f", of {name_ranks(gpu.ranks)}," if gpu.ranks else ""
        warm = f", at up to {bad[reason].hottest} °C" if bad[reason].hottest is not None else ""
        throttled = f"{reason} at {bad[reason].times} of {gpu.looks} looks{warm}"
        yield build_finding(
            "gpu-throttled", gpu.ranks,
            f"GPU {gpu.index} of {node.host}{whose} was throttled while the job ran: {throttled}",
            confidence="certain", nodes=(node.host,), first_seen=bad[reason].since,
            evidence=(Citation(node.metrics_path, None, "gpus", throttled),),
        )  # fmt: skip
