"""Some ranks or nodes talk over a slower network than the others: by NCCL's own words at its start, or as measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import hosts, who
from distdbg.diagnosis.nodes._nodes import of_nodes, size
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.slow._bandwidth import slow_nodes, slow_pairs
from distdbg.evidence.host.preflight import Preflight
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.findings import entry
from distdbg.model import Citation, Finding


@rule("slow-link")
def slow_link(evidence: RunEvidence) -> Iterable[Finding]:
    known = [rank for rank in evidence.ranks if rank.nccl is not None]
    yield from _parted(evidence, {rank.rank: rank.nccl.network for rank in known if rank.nccl and rank.nccl.network})
    direct = {
        rank.rank: "with" if not rank.nccl.indirect else "without"
        for rank in known
        if rank.nccl and (rank.nccl.direct or rank.nccl.indirect)
    }
    yield from _parted(evidence, direct, "work {} GPU Direct RDMA on all of their cards")
    if evidence.preflight is not None:
        if evidence.preflight.on != "local":  # one machine has no links
            yield from _measured(evidence.preflight)
        yield from _nvlinks(evidence.preflight)


def _parted(evidence: RunEvidence, said: dict[int, str], words: str = "use network {}") -> Iterable[Finding]:
    """Those on the slower side, where there are two."""
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, what in said.items():
        sides[what].append(rank)
    slow = next((name for name in ("Socket", "without") if name in sides), None)
    if slow is None or len(sides) < 2:
        return
    ranks = tuple(sorted(sides[slow]))
    others = tuple(sorted(rank for name, side in sides.items() if name != slow for rank in side))
    fast = " or ".join(sorted(name for name in sides if name != slow))
    records = {rank.rank: rank for rank in evidence.ranks}
    yield Finding(
        id="slow-link",
        severity="warning",
        confidence="certain",
        summary=f"{who(evidence, ranks)} {words.format(slow)}, {who(evidence, others)} {words.format(fast)}",
        cause=f"Their devices: {_devices(records[ranks[0]])}; the others': {_devices(records[others[0]])}.",
        remedy=entry("slow-link").remedy,
        ranks=ranks,
        nodes=hosts(evidence, ranks),
        evidence=tuple(Citation(records[rank].nccl_path, None, f"rank {rank}") for rank in (ranks[0], others[0])),
    )


def _measured(preflight: Preflight) -> Iterable[Finding]:
    nodes = {node.name: node for node in preflight.nodes}
    slow = slow_nodes(preflight.rates)
    for name, best, usual in slow:
        words = f"{name} exchanges {size(best)}/s at best with any other node, the others {size(usual)}/s"
        yield of_nodes("slow-link", (nodes[name],), words)
    for (first, second), best, usual in slow_pairs(preflight.rates, {name for name, _, _ in slow}):
        words = f"{first} and {second} exchange {size(best)}/s at best, other pairs {size(usual)}/s"
        yield of_nodes("slow-link", (nodes[first], nodes[second]), words)


def _nvlinks(preflight: Preflight) -> Iterable[Finding]:
    """A device with fewer links up than its peers on one node."""
    for node, facts in preflight.each("gpus"):
        up = {gpu["index"]: int(gpu["nvlinks"]) for gpu in facts.get("gpus", ()) if gpu.get("nvlinks") is not None}
        most = max(up.values(), default=0)
        for index, links in up.items():
            if links < most:
                words = f"GPU {index} of {node.name} has {links} NVLinks up, others there have {most}"
                yield of_nodes("slow-link", (node,), words, remedy="`nvidia-smi nvlink -s`; reset the GPU, or tell "
                               "whoever runs the cluster.")  # fmt: skip


def _devices(rank: RankRecord) -> str:
    return ", ".join(rank.nccl.devices) if rank.nccl and rank.nccl.devices else "not told"
