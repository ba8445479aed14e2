"""Detect processes that use a GPU before the job starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.diagnosis.node_findings import looks, node_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding
from distdbg.wording import size

#: The driver's own share is a few hundred MB, more on the largest devices.
_OF_THE_DRIVER = 2 << 30


@rule("gpu-memory-taken", needs=("preflight",))
def gpu_memory_taken(evidence: RunEvidence) -> Iterator[Finding]:
    for node, facts in looks(evidence, "gpus"):
        for gpu in facts.get("gpus", ()):
            used, processes = gpu.get("memory_used") or 0, gpu.get("processes") or ()
            if gpu.get("instances") or not (processes or used > _OF_THE_DRIVER):
                continue
            who = ", ".join(map(_who, processes[:3])) or "nobody that NVML shows"
            more = f" and {len(processes) - 3} more" if len(processes) > 3 else ""
            of = f" of {size(gpu['memory_total'])}" if gpu.get("memory_total") else ""
            summary = f"{size(used)}{of} of GPU {gpu['index']} of {node.name} are taken by {who}{more}"
            yield node_finding("gpu-memory-taken", (node,), summary)


def _who(process: Mapping[str, Any]) -> str:
    words = [f"pid {process['pid']}"]
    if process.get("command"):
        words.append(f"({process['command']} of {process['user']})")
    if process.get("memory_used") is not None:
        words.append(f"with {size(process['memory_used'])}")
    return " ".join(words)
