"""Containers of a script that keep more with every step, as the ranks have counted them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from distdbg.checks._findings import hosts, who
from distdbg.checks._growing import growing
from distdbg.evidence.jsonl import integer, number, text
from distdbg.evidence.memory_answer import gib
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding

_MOST = 5


@dataclass(frozen=True)
class Kept:
    """`lines` are those that add to it, of `file`; both empty where nobody was found to hold it."""

    rank: int
    kind: str
    name: str
    file: str
    lines: tuple[int, ...]
    length: int
    slope: float
    graph: bool
    of: str
    epochs: int
    step: int
    citation: Citation

    @property
    def place(self) -> str:
        short = self.file.rpartition("/")[2]
        return ", ".join(f"{short}:{line}" for line in self.lines) or short


def keeps(rank: RankRecord) -> Iterator[Kept]:
    """What a rank keeps without an end in sight: losses with graphs at once, others only beyond an epoch.

    A dict or a set may be a cache, which ends when every item has been seen: without a loader nobody knows when.
    """
    memory = rank.memory
    if memory is None:
        return
    for entry in memory.growing:
        lines = entry.get("lines")
        one = Kept(
            rank.rank, text(entry, "type"), text(entry, "name"), text(entry, "file"),
            tuple(n for n in lines if isinstance(n, int)) if isinstance(lines, list) else (),
            integer(entry, "length") or 0, number(entry, "bytes_a_step") or 0.0, entry.get("graph") is True,
            text(entry, "of"), integer(entry, "epochs") or 0, memory.counted_at or 0,
            Citation(f"{memory.path}/facts.jsonl", memory.line, "containers that grow"),
        )  # fmt: skip
        ordered = one.kind in ("list", "deque")
        if one.graph or one.epochs > 0 or (ordered and not memory.loads):
            yield one


def kept(run: RunEvidence) -> Iterable[Finding]:
    """A `memory-leak` for each container, with all ranks that have it."""
    same: dict[tuple[object, ...], list[Kept]] = {}
    for rank in run.ranks:
        for one in keeps(rank):
            same.setdefault((one.file, one.lines, one.name or one.length), []).append(one)
    ranked = sorted(same.values(), key=lambda group: -max(one.slope for one in group))
    for group in ranked[:_MOST]:
        yield _finding(run, group)


def _finding(run: RunEvidence, group: list[Kept]) -> Finding:
    lead = max(group, key=lambda one: one.slope)
    ranks = tuple(sorted(one.rank for one in group))
    named = f"`{lead.name}` ({lead.place})" if lead.name else f"a {lead.kind} that nobody names"
    what = f"{lead.of}s with their graphs" if lead.graph else f"{lead.of}s" if lead.of else "entries"
    ends = [one for one in growing(run) if one.rank.rank in ranks and one.ends_at is not None]
    speed = max((one.growth.slope for one in ends), default=lead.slope)
    end = min(ends, key=lambda one: one.ends_at or 0, default=None)
    return Finding(
        "memory-leak",
        "warning",
        "certain" if lead.graph or lead.epochs > 1 else "likely" if lead.epochs else "possible",
        f"{who(run, ranks)} keep{'s' if len(ranks) == 1 else ''} {what} in {named}: {gib(speed)} more a step"
        + (f", and {end.of} would be full at about step {end.ends_at:,}" if end else ""),
        cause=f"The {lead.kind} had {lead.length:,} entries at step {lead.step}, and had grown at each count before"
        + (f", over {lead.epochs} ends of an epoch." if lead.epochs > 0 else ".")
        + ("" if lead.graph or lead.epochs else " One that is filled on purpose, as a replay buffer, ends when full.")
        + (" A graph keeps every tensor that its backward could still want." if lead.graph else ""),
        remedy="Keep numbers instead (`loss.item()`)." if lead.graph else "Let go of it when its step or epoch is "
        "over, keep what is computed from it, or bound it.",
        ranks=ranks,
        nodes=hosts(run, ranks),
        step=lead.step,
        evidence=tuple(one.citation for one in group[:3]),
    )  # fmt: skip
