"""Detect ranks or nodes on a slower network than the others, from NCCL's log at the start or from measurements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.node_findings import looks, node_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.host.preflight import Preflight
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding, grouped
from distdbg.wording import size

Pair = tuple[str, str]
Rates = Mapping[Pair, Sequence[float]]
#: Ratio of a slow node's best rate to the median of the others' bests: machines that share a switch with a busy job
#: pass, one on a slower link does not.
_RATIO = 0.4


@rule("slow-link", needs=("preflight", "rank.nccl"))
def slow_link(evidence: RunEvidence) -> Iterable[Finding]:
    known = [rank for rank in evidence.ranks if rank.nccl is not None]
    yield from _parted(evidence, {rank.rank: rank.nccl.network for rank in known if rank.nccl and rank.nccl.network})
    looked = [(rank.rank, rank.nccl) for rank in known if rank.nccl and (rank.nccl.direct or rank.nccl.indirect)]
    direct = {rank: "without" if nccl.indirect else "with" for rank, nccl in looked}
    yield from _parted(evidence, direct, "work {} GPU Direct RDMA on all of their cards")
    if evidence.preflight is not None and not evidence.preflight.one_machine:
        yield from _measured(evidence.preflight)
    yield from _nvlinks(evidence)


def _parted(evidence: RunEvidence, said: dict[int, str], words: str = "use network {}") -> Iterable[Finding]:
    """Those on the slower side, where there are two."""
    sides = grouped((what, rank) for rank, what in said.items())
    slow = next((name for name in ("Socket", "without") if name in sides), None)
    if slow is None or len(sides) < 2:
        return
    ranks = tuple(sorted(sides[slow]))
    others = tuple(sorted(rank for name, side in sides.items() if name != slow for rank in side))
    fast = " or ".join(sorted(name for name in sides if name != slow))
    records = {rank.rank: rank for rank in evidence.ranks}
    yield build_finding(
        "slow-link",
        ranks,
        f"{who(evidence, ranks)} {words.format(slow)}, {who(evidence, others)} {words.format(fast)}",
        f"Their devices: {_devices(records[ranks[0]])}; the others': {_devices(records[others[0]])}.",
        confidence="certain",
        evidence=(Citation(records[rank].nccl_path, None, f"rank {rank}") for rank in (ranks[0], others[0])),
    )


def _measured(preflight: Preflight) -> Iterable[Finding]:
    nodes = {node.name: node for node in preflight.nodes}
    slow = slow_nodes(preflight.rates)
    for name, best, usual in slow:
        words = f"{name} exchanges {size(best)}/s at best with any other node, the others {size(usual)}/s"
        yield node_finding("slow-link", (nodes[name],), words)
    for (first, second), best, usual in slow_pairs(preflight.rates, {name for name, _, _ in slow}):
        words = f"{first} and {second} exchange {size(best)}/s at best, other pairs {size(usual)}/s"
        yield node_finding("slow-link", (nodes[first], nodes[second]), words)


def _nvlinks(evidence: RunEvidence) -> Iterable[Finding]:
    """A device with fewer links up than its peers on one node."""
    for node, facts in looks(evidence, "gpus"):
        up = {gpu["index"]: int(gpu["nvlinks"]) for gpu in facts.get("gpus", ()) if gpu.get("nvlinks") is not None}
        most = max(up.values(), default=0)
        for index, links in up.items():
            if links < most:
                words = f"GPU {index} of {node.name} has {links} NVLinks up, others there have {most}"
                yield node_finding("slow-link", (node,), words, remedy="`nvidia-smi nvlink -s`; reset the GPU, or tell "
                               "the cluster's administrators.")  # fmt: skip


def _devices(rank: RankRecord) -> str:
    return ", ".join(rank.nccl.devices) if rank.nccl and rank.nccl.devices else "not known"


def slow_nodes(rates: Rates) -> list[tuple[str, float, float]]:
    """(node, its best, the others' usual) for each node that is slow with every other; needs three nodes."""
    found = []
    for node in dict.fromkeys(name for pair in rates for name in pair):
        own = [rates[pair] for pair in rates if node in pair]
        others = [rates[pair] for pair in rates if node not in pair]
        if (judged := _slow(own, others)) is not None:
            found.append((node, *judged))
    # Where half of the nodes are slow, none is odd.
    return found if 2 * len(found) < len({name for pair in rates for name in pair}) else []


def slow_pairs(rates: Rates, but: Collection[str]) -> list[tuple[Pair, float, float]]:
    """The same for single pairs of nodes that are not slow themselves; needs four nodes, to tell whose link it is."""
    kept = {pair: times for pair, times in rates.items() if not set(pair) & set(but)}
    if len({name for pair in kept for name in pair}) < 4:
        return []
    found = []
    for pair, times in kept.items():
        others = [kept[other] for other in kept if other != pair]
        if (judged := _slow([times], others)) is not None:
            found.append((pair, *judged))
    return found


def _slow(own: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """(best, usual) where the best repetition is below the ratio, and below the worst of any of the others: noise is
    not."""
    if not own or not others:
        return None
    best, usual = max(map(max, own)), median(map(max, others))
    return (best, usual) if best < _RATIO * usual and best < min(map(min, others)) else None
