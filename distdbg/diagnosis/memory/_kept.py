"""Find what ranks keep more of with every step: containers, which the ranks count, and memory of their GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._growing import (
    Growing,
    device_growing,
    ends_by_itself,
    full_at,
    growing,
    on_device,
    trend_citation,
)
from distdbg.evidence.jsonl import integer, number, text
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.model import Citation, Finding, grouped
from distdbg.wording import plural

_MAX_FINDINGS = 5


@dataclass(frozen=True)
class GrowingContainer:
    """`lines` are those that add to it, of `file`; both empty where nobody was found to hold it.

    `slope` are the bytes a step that its newest entries have, `on_device` those of them on a GPU; of what a graph keeps
    beside them nobody knows how much it is. `grows` is the rank's memory that grows by it.
    """

    rank: int
    kind: str
    name: str
    file: str
    lines: tuple[int, ...]
    length: int
    slope: float
    on_device: float
    graph: bool
    of: str
    epochs: int
    step: int
    citation: Citation
    grows: Growing | None = None
    #: it has never more entries than these, and would have them at that step
    most: int | None = None
    filled_at: int | None = None

    @property
    def place(self) -> str:
        short = self.file.rpartition("/")[2]
        return ", ".join(f"{short}:{line}" for line in self.lines) or short


def keeps(run: RunEvidence) -> list[GrowingContainer]:
    """What ranks keep without an end in sight: losses with graphs at once, others only beyond an epoch.

    Or where their memory would be full soon. A dict or a set may be a cache, which ends when every item has been seen:
    without a loader nobody knows when.
    """
    return [one for one, loads in _measured(run) if not ends_by_itself(one.grows, one.filled_at)
            and (one.graph or one.epochs > 0 or (one.kind in ("list", "deque") and not loads)
                 or (one.grows and one.grows.soon))]  # fmt: skip


def fills(run: RunEvidence) -> list[GrowingContainer]:
    """What is full before memory is: a ring that has a length of its own."""
    return [one for one, _ in _measured(run) if ends_by_itself(one.grows, one.filled_at)]


def _measured(run: RunEvidence) -> Iterator[tuple[GrowingContainer, bool]]:
    """All counted containers, each with the rank's memory that grows, and whether an epoch's end was counted."""
    ranks = [rank for rank in run.ranks if rank.memory and rank.memory.growing]
    on_hosts = {one.rank.rank: one for one in growing(run)} if ranks else {}
    for rank in ranks:
        on_host, on_device = on_hosts.get(rank.rank), device_growing(rank)
        for one in _counted(rank):
            device = one.on_device > (0 if one.graph else one.slope / 2)
            its = on_device if device else on_host
            one = replace(one, grows=its) if its and accounts_for([one], its, device=device) else one  # noqa: PLW2901
            yield one, bool(rank.memory and rank.memory.loads)


def accounts_for(named: Iterable[GrowingContainer], its: Growing, *, device: bool) -> bool:
    """Do these keep most of what this memory grows by? A graph's nodes are on the host, wherever its tensors are."""
    mine = [one for one in named if one.rank == its.rank.rank]
    if any(one.graph and (one.on_device or not device) for one in mine):
        return True
    size = sum(one.on_device if device else one.slope - one.on_device for one in mine)
    return thresholds.HELD * its.growth.slope <= size <= its.growth.slope / thresholds.HELD


def kept(run: RunEvidence, named: Sequence[GrowingContainer]) -> Iterable[Finding]:
    """A `memory-leak` for each container, with all ranks that have it."""
    same = grouped(((one.file, one.lines, one.name or one.length), one) for one in named)
    ranked = sorted(same.values(), key=lambda group: -max(one.slope for one in group))
    for group in ranked[:_MAX_FINDINGS]:
        yield _finding(run, group)


def standing_grows(run: RunEvidence, named: Sequence[GrowingContainer]) -> Iterator[Finding]:
    """`memory-leak` by what is allocated at the ends of steps; silent where a snapshot or a count names it."""
    known = {answer.rank for answer in run.snapshots if answer.leaks}
    for rank, one in kept_on_device(run):
        if rank.rank in known or accounts_for(named, one, device=True):
            continue
        trend, points = one.growth, on_device(rank)
        yield build_finding("memory-leak", (rank.rank,),
            f"rank {rank.rank} keeps {gib(trend.stair or trend.slope)} more of its GPU with every "
            f"{'epoch' if trend.stair else 'step'}{full_at(points, trend.slope)}",
            f"At the ends of steps it had {gib(trend.levels[0])} allocated at step {trend.first}, "
            f"{gib(trend.levels[-1])} at step {trend.last}.",
            remedy="See what it is: `distdbg memory snapshot RUN`, then `distdbg memory analyze RUN`.",
            confidence="likely" if one.certain else "possible", step=trend.last,
            evidence=trend_citation(rank, trend, "MA"),
        )  # fmt: skip


def kept_on_device(run: RunEvidence) -> Iterator[tuple[RankRecord, Growing]]:
    """Ranks whose allocated memory grows from step to step, but for what fills a container that has an end.

    Within the first epoch, or where each step needs more than the one before, only where the device would be full soon.
    """
    filling = fills(run)
    for rank in run.ranks:
        one = device_growing(rank)
        if one is not None and (one.lasts or one.soon) and not accounts_for(filling, one, device=True):
            yield rank, one


def _counted(rank: RankRecord) -> Iterator[GrowingContainer]:
    memory = rank.memory
    if memory is None:
        return
    for entry in memory.growing:
        lines, most = entry.get("lines"), integer(entry, "most")
        length, step, rate = integer(entry, "length") or 0, memory.counted_at or 0, number(entry, "rate") or 0.0
        yield GrowingContainer(
            rank.rank, text(entry, "type"), text(entry, "name"), text(entry, "file"),
            tuple(n for n in lines if isinstance(n, int)) if isinstance(lines, list) else (),
            length, number(entry, "bytes_a_step") or 0.0,
            number(entry, "device_a_step") or 0.0, entry.get("graph") is True,
            text(entry, "of"), integer(entry, "epochs") or 0, step,
            Citation(f"{memory.path}/facts.jsonl", memory.line, "containers that grow"),
            most=most, filled_at=None if most is None or not rate else step + int((most - length) / rate),
        )  # fmt: skip


def _finding(run: RunEvidence, group: list[GrowingContainer]) -> Finding:
    lead = max(group, key=lambda one: one.slope)
    ranks = tuple(sorted(one.rank for one in group))
    named = f"`{lead.name}` ({lead.place})" if lead.name else f"a {lead.kind} that nobody names"
    what = f"{lead.of}s with their graphs" if lead.graph else f"{lead.of}s" if lead.of else "entries"
    return build_finding("memory-leak",
        ranks,
        f"{who(run, ranks)} {plural('keeps', ranks)} {what} in {named}: {_speed(group)}",
        f"The {lead.kind} had {lead.length:,} entries at step {lead.step}, and had grown at each count before"
        + (f", over {lead.epochs} ends of an epoch." if lead.epochs > 0 else ".")
        + _end_of(lead)
        + (" A graph keeps every tensor that its backward could still want." if lead.graph else ""),
        remedy="Keep numbers instead (`loss.item()`)." if lead.graph else "Let go of it when its step or epoch is "
        "over, keep what is computed from it, or bound it.",
        confidence="certain" if lead.graph or lead.epochs > 1 else "likely" if lead.epochs else "possible",
        step=lead.step,
        evidence=(one.citation for one in group[:3]),
    )  # fmt: skip


def _end_of(one: GrowingContainer) -> str:
    if one.most is not None and one.filled_at is not None:
        return f" It may have {one.most:,}, and would at about step {one.filled_at:,}: there is no room for so many."
    return "" if one.graph or one.epochs else " One that is filled on purpose, as a replay buffer, ends when full."


def _speed(group: list[GrowingContainer]) -> str:
    """The memory's own slope and end where the container is the reason; else what it is known to add."""
    grow = [one.grows for one in group if one.grows is not None]
    if not grow:
        lead = max(group, key=lambda one: one.slope)
        return f"{'at least ' if lead.graph else ''}{gib(lead.slope)} more a step"
    first = min(grow, key=lambda one: (one.ends_at is None, one.ends_at or 0, -one.growth.slope))
    end = "" if first.ends_at is None else f", and {first.of} would be full at about step {first.ends_at:,}"
    return f"{gib(first.growth.slope)} more a step{end}"
