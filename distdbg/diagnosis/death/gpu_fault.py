"""A GPU that is there and not well, or that should be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.node_findings import node_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.preflight import NodeProbe, Preflight
from distdbg.evidence.run import NodeRecord, RunEvidence
from distdbg.model import CauseClass, Citation, Finding, fold_ranks
from distdbg.protocol.agent_events import LOST, GpuXid
from distdbg.wording import name_ranks

#: Xids that speak of the device, not of a program's mistake (as 13, 31 and 43 do): NVIDIA's catalogue, "hardware".
_HARDWARE = {48: "memory error, not corrected", 61: "internal microcontroller", 62: "internal microcontroller",
             64: "row remapping failed", 74: "NVLink", 79: "off the bus", 95: "uncontained memory error",
             119: "GSP does not answer", 120: "GSP error", 140: "ECC error not recovered"}  # fmt: skip


@rule("gpu-fault")
def gpu_fault(evidence: RunEvidence) -> Iterator[Finding]:
    yield from _while_it_ran(evidence)
    preflight = evidence.preflight
    if preflight is None:
        return
    for node, facts in preflight.each("gpus"):
        for gpu in facts.get("gpus", ()):
            if (why := _why(gpu)) is not None:
                yield node_finding("gpu-fault", (node,), f"GPU {gpu['index']} of {node.name}: {why}")
        yield from _xids(node, facts)
    yield from _too_few(preflight)


def _while_it_ran(evidence: RunEvidence) -> Iterator[Finding]:
    """Xids that NVML reported to the agents: an error where the rank on that device failed, and the root cause where
    it failed with an error of CUDA."""
    failed = {rank.rank for rank in evidence.ranks if rank.exit_code}
    by_cuda = {f.rank.rank: f for f in failures(evidence) if f.finding == "cuda-error"}
    seen: dict[tuple[int, str, int], tuple[NodeRecord, int, GpuXid]] = {}
    for node in evidence.nodes:
        for line, event in GpuXid.among(node.events):
            if event.xid in _HARDWARE:
                seen.setdefault((node.node_rank, event.uuid, event.xid), (node, line, event))
    for node, line, event in seen.values():
        ranks = tuple(r for r in event.ranks if isinstance(r, int))
        whose = f", of {name_ranks(ranks)}," if ranks else ""
        cause_class, first_seen = _nearest([by_cuda[r] for r in ranks if r in by_cuda], event.t)
        device, number = event.uuid or "unknown", event.xid
        yield build_finding(
            "gpu-fault", ranks,
            f"GPU {device} of {node.host}{whose} had Xid {number} ({_HARDWARE[number]}) while the job ran",
            severity="error" if failed & set(ranks) else "warning", confidence="certain", nodes=(node.host,),
            first_seen=first_seen,
            evidence=(Citation(node.events_path, line, f"Xid {number}"),), cause_class=cause_class,
        )  # fmt: skip


def _nearest(noticed: Sequence[RankFailure], t: float | None) -> tuple[CauseClass, float | None]:
    """Class of cause and first symptom: those of the CUDA errors that the fault explains, and never after them."""
    roots = [failure for failure in noticed if failure.cause_class < CauseClass.STUCK]  # a device is nobody's victim
    times = [when for when in (t, *(failure.t for failure in roots)) if when is not None]
    return min((failure.cause_class for failure in roots), default=CauseClass.OBSERVATION), min(times, default=None)


def _why(gpu: Mapping[str, Any]) -> str | None:
    unreachable = gpu.get("unknown", {}).get("device")
    if unreachable:
        return str(unreachable)
    lost = next((why for why in gpu.get("unknown", {}).values() if why in LOST), None)
    if lost:
        return str(lost)
    errors = gpu.get("ecc_uncorrected")
    return f"{errors} memory errors that ECC did not correct, since the driver was loaded" if errors else None


def _xids(node: NodeProbe, facts: Mapping[str, Any]) -> Iterator[Finding]:
    seen = Counter((str(bus), int(number)) for bus, number, _ in facts.get("xids", ()) if int(number) in _HARDWARE)
    for (bus, number), count in seen.items():
        times = f", {count} times" if count > 1 else ""
        words = f"GPU {_index(facts, bus)} of {node.name}: Xid {number} ({_HARDWARE[number]}) since boot{times}"
        cause = "It may have been repaired since: a reset does not clear the log."
        yield node_finding("gpu-fault", (node,), words, cause, severity="warning", confidence="likely")


def _index(facts: Mapping[str, Any], bus: str) -> str:
    """The kernel writes 0000:19:00, NVML 00000000:19:00.0."""
    tail = ":".join(bus.lower().split(":")[-2:]).partition(".")[0]
    fits = [gpu["index"] for gpu in facts["gpus"] if tail in str(gpu.get("bus_id") or "").lower()]
    return str(fits[0]) if len(fits) == 1 else f"at {bus}"


def _too_few(preflight: Preflight) -> Iterator[Finding]:
    """Than most of its peers, where they are the same model."""
    counts = {node: len(facts.get("gpus", ())) for node, facts in preflight.each("gpus")}
    if len(counts) < 2:
        return
    usual, having = Counter(counts.values()).most_common(1)[0]
    for node, count in counts.items():
        if count < usual and (having > 1 or count == 0):
            there = [gpu["index"] for gpu in node.facts("gpus").get("gpus", ())]
            have = f"shows {count} GPUs ({fold_ranks(there)})" if there else "shows no GPU"
            absent = node.facts("gpus").get("absent")
            others = f"{having} other nodes show" if having > 1 else "the other node shows"
            cause = f"On {node.name}: {absent}." if absent and not there else ""
            yield node_finding(
                "gpu-fault", (node,), f"{node.name} {have}, {others} {usual}", cause, confidence="likely"
            )
