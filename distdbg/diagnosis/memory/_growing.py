"""Find the trends of a run's memory over its steps, and the step at which it would be full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.memory.growth import Child, Growth, Point, growth
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.model import Citation, grouped


@dataclass(frozen=True)
class Growing:
    rank: RankRecord
    growth: Growth
    #: the step at which it ends, of what; None where nothing says what there is
    ends_at: int | None
    of: str
    path: str
    #: whose memory it is, where it is not the rank's own
    child: Child | None = None
    #: its steps themselves need more and more, as those of longer sequences or larger batches do
    swells: bool = False
    #: the step at which it ends by itself, where that is known
    filled_at: int | None = None

    @property
    def citation(self) -> Citation:
        shown = self.growth.levels
        steps = f"steps {self.growth.first} to {self.growth.last}"
        return Citation(self.path, None, f"memory that is the process's own, {steps}", " -> ".join(map(gib, shown)))

    @property
    def lasts(self) -> bool:
        """Nothing is known that would end it: an epoch was over (-1: there is no loader, and so none in which a cache
        could be filled), and steps need no more than before."""
        return self.growth.epochs != 0 and not self.swells

    @property
    def certain(self) -> bool:
        return self.growth.epochs > 0 and not self.swells

    @property
    def soon(self) -> bool:
        """It ends before as many steps again are done; of a child, which may end with its epoch, as it has seen."""
        born = self.child.points[0][0] if self.child else 0
        return self.ends_at is not None and self.ends_at <= 2 * self.growth.last - born


def growing(run: RunEvidence) -> Iterator[Growing]:
    """Ranks whose own memory grows with their steps, each with the step at which its node has no more."""
    return (one for one in _all(run) if one.child is None)


def children_growing(run: RunEvidence) -> Iterator[tuple[Growing, Child]]:
    """The same of their children, loaders' workers mostly: what a data set keeps grows there, and not in the rank."""
    return ((one, one.child) for one in _all(run) if one.child is not None)


def device_growing(rank: RankRecord) -> Growing | None:
    """What a rank has allocated of its GPU at the ends of steps."""
    if rank.memory is None:
        return None
    points = on_device(rank)
    trend = growth([(p.step, p.standing or 0, p.epochs) for p in points], *thresholds.DEVICE)
    if trend is None:
        return None
    path = f"{rank.memory.path}/memory.jsonl"
    swells = _swells([(p.step, (p.peak or 0) - (p.standing or 0), p.epochs) for p in points], trend)
    return Growing(rank, trend, full_step(points, trend.slope), "its GPU", path, swells=swells)


def on_device(rank: RankRecord) -> list[Point]:
    return [p for p in (rank.memory.points if rank.memory else ()) if p.reserved is not None]


def full_at(points: Sequence[Point], slope: float) -> str:
    """The end of a sentence: the step at which the device is full; empty if that is not known."""
    step = full_step(points, slope)
    return "" if step is None else f": it would be full at about step {step:,}"


def full_step(points: Sequence[Point], slope: float) -> int | None:
    """What the device has, less what is in use of it, at this slope (bytes a step)."""
    last = next((p for p in reversed(points) if p.used is not None and p.total), None)
    if last is None or last.used is None or last.total is None:
        return None
    return last.step + int((last.total - last.used) / slope)


def _all(run: RunEvidence) -> Iterator[Growing]:
    """A node's memory is its ranks' and their children's together: all that still grows brings its end nearer."""
    by_node = grouped((rank.node_rank, rank) for rank in run.ranks)
    for node in run.nodes:
        mine = by_node.get(node.node_rank, ())
        found = [one for rank in mine for one in (*_own(rank, node), *_children(rank, node))]
        rate = sum(one.growth.slope for one, step in found if step is not None)
        for one, step in found:
            if node.memory.headroom is not None and step is not None:
                ends_at = max(one.growth.last, step + int(node.memory.headroom / rate))
                one = replace(one, ends_at=ends_at, of=node.memory.of)  # noqa: PLW2901
            if not ends_by_itself(one, one.filled_at):
                yield one


def ends_by_itself(one: Growing | None, at: int | None) -> bool:
    """Whether the growth ends before memory is full, or the size of that memory is not known."""
    return at is not None and (one is None or one.ends_at is None or at <= one.ends_at)


def _own(rank: RankRecord, node: NodeRecord) -> Iterator[tuple[Growing, int]]:
    """The growth of a rank's own memory, with the step at the node's last look. Uses the rank's own lines where there
    are enough, else its agent's."""
    points, path = node.memory.points.get(rank.rank, ()), node.memory.path
    if rank.memory and len(rank.memory.points) >= thresholds.FEWEST_POINTS:
        points, path = rank.memory.points, f"{rank.memory.path}/memory.jsonl"
    trend = growth([(p.step, p.anon, p.epochs) for p in points], *thresholds.HOST)
    if trend is not None:
        swells = _swells([(p.step, p.within or 0, p.epochs) for p in points], trend)
        step = node.memory.steps.get(rank.rank, points[-1].step)
        yield Growing(rank, trend, None, "", path, swells=swells, filled_at=_filled_at(points, trend)), step


def _swells(within: Sequence[tuple[int, int, int]], trend: Growth) -> bool:
    return growth(within, int(thresholds.SWELLS * trend.total), thresholds.SWELLS_ITSELF) is not None


def _filled_at(points: Sequence[Point], trend: Growth) -> int | None:
    """The step at which an array that is filled from step to step is full; None where the growth is another.

    Such an array was allocated long before, and all of it may be touched in the end. A leak allocates as it grows.
    """
    asked = [p.asked for p in points if trend.first <= p.step <= trend.last and p.asked is not None]
    last, third = points[-1], len(asked) // 3
    if not third or last.asked is None:
        return None
    if min(asked[-third:]) - min(asked[:third]) >= thresholds.REQUESTED * trend.total:
        return None
    return last.step + int(max(0, last.asked - last.anon) / trend.slope)


def _children(rank: RankRecord, node: NodeRecord) -> Iterator[tuple[Growing, int | None]]:
    """The growth of a rank's children. The step is None where the newest look has not seen the child: its memory was
    given back."""
    mine = node.memory.children.get(rank.rank, ())
    looks = [child.points[-1][0] for child in mine] + [p.step for p in node.memory.points.get(rank.rank, ())[-1:]]
    for child in mine:
        trend = growth(child.points, *thresholds.HOST)
        if trend is not None:
            step = child.points[-1][0]
            yield Growing(rank, trend, None, "", node.memory.path, child), step if step == max(looks) else None


def trend_citation(rank: RankRecord, trend: Growth, column: str) -> tuple[Citation]:
    path = f"{rank.memory.path}/memory.jsonl" if rank.memory else ""
    levels = " -> ".join(map(gib, trend.levels))
    return (Citation(path, None, f"{column}, steps {trend.first} to {trend.last}", levels),)
