"""What several checks say of a rank's children: which of them grew, since when, and whether the kernel killed one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from distdbg.evidence.logs.kernel import memory_kills
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.growth import Child
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation
from distdbg.protocol.agent_events import Kernel

_PIDS = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")


def children_of(evidence: RunEvidence, rank: RankRecord) -> tuple[Child, ...]:
    node = evidence.node_of(rank)
    return node.memory.children.get(rank.rank, ()) if node else ()


def grew(found: Sequence[Child]) -> str:
    """The one that grew most, and how much the others did; empty where none did."""
    grown = sorted((child for child in found if child.grown), key=lambda child: -child.grown)
    if not grown:
        return ""
    first, rest = grown[0], grown[1:]
    least = min(size for _, size, _ in first.points)
    words = f"{first.who} grew from {gib(least)} to {gib(first.points[-1][1])} since step {first.since}"
    more = f", and {len(rest)} more by {gib(sum(child.grown for child in rest))} together" if rest else ""
    return f"{words[0].upper()}{words[1:]}{more}."


def died(evidence: RunEvidence, rank: RankRecord, message: str) -> tuple[str, tuple[Citation, ...]]:
    """What is known of the workers that a loader's exception names, as sentences, with what the kernel says of them."""
    pids = [int(pid) for told in _PIDS.findall(message) for pid in told.replace(",", " ").split()[:64]]
    known = [child for child in children_of(evidence, rank) if child.pid in pids]
    node = evidence.node_of(rank)
    numbered = memory_kills(node.kernel) if node and node.kernel_has_own_pids else []
    kills = [kill for kill in numbered if kill.pid in pids]
    cited = tuple(
        Citation(node.events_path, Kernel.last_line(node.events), "kernel message", kill.text)
        for kill in kills[:1]
        if node
    )
    return " ".join(filter(None, (_killed([kill.pid for kill in kills]), _sizes(known), grew(known)))), cited


def _killed(pids: Sequence[int]) -> str:
    which = f"worker {pids[0]}" if len(pids) == 1 else f"workers {', '.join(map(str, pids[:4]))}"
    return f"The kernel killed {which} because there was no memory left." if pids else ""


def _sizes(known: Iterable[Child]) -> str:
    words = [f"worker {child.pid} {gib(child.points[-1][1])} at step {child.points[-1][0]}" for child in known][:4]
    return f"Last seen: {', '.join(words)}." if words else ""
