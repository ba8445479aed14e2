"""Judge whether a figure of a run's memory grows with the steps, and continues to grow.

A series is looked at after its warm-up, the first third of its steps, in six parts of equal length. What grows has a
higher level in each part than in the one before, by about as much each time. A start that ends, a cache that fills, a
saw's teeth and a curve that flattens have not. What comes once an epoch makes too few stairs for six parts: there each
epoch's last look is judged, from the second epoch on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from distdbg.evidence.jsonl import dicts, integer
from distdbg.evidence.memory import thresholds
from distdbg.evidence.memory.answer import gib
from distdbg.model import grouped


@dataclass(frozen=True)
class Point:
    """`anon` are bytes of the process that are no file's and not shared; `epochs` is -1 where no loader was seen.

    `within` is how much more it had within the step than at its end, `asked` what it may write to, touched or not.
    """

    step: int
    anon: int
    epochs: int = -1
    within: int | None = None
    asked: int | None = None
    #: where it uses CUDA: allocated at the step's end; the highest of its phases' allocated and reserved; the highest
    #: use that those ends may not have seen; torch's own highest since the start, or since the script last reset it
    #: (Max_MA); and what everybody uses of the device, of how much
    standing: int | None = None
    allocated: int | None = None
    peak: int | None = None
    highest: int | None = None
    reserved: int | None = None
    used: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class Cycle:
    """Objects that a collection freed during one count; `owner` is `Class (file)`, empty where none was found."""

    freed: int
    bytes: int
    owner: str
    step: int
    line: int


@dataclass(frozen=True)
class MemorySeries:
    """One rank's. `growing` are the containers of the newest count that grew up to then."""

    points: tuple[Point, ...] = ()
    path: str = ""
    growing: tuple[Mapping[str, Any], ...] = ()
    counted_at: int | None = None
    #: the line of facts.jsonl (1-based), and whether ends of epochs are counted
    line: int | None = None
    loads: bool = False
    cycles: tuple[Cycle, ...] = ()
    #: from all over the run, for a picture: fewer of them where the run was long
    course: tuple[Point, ...] = ()


@dataclass(frozen=True)
class NodeMemory:
    """What a node can still give, at the last look, and its ranks' own figures every ten seconds.

    `steps` are the ranks' at it: one at which they ran. Before, they had not taken theirs; the dead gave it back.
    """

    headroom: int | None = None
    of: str = ""
    points: Mapping[int, tuple[Point, ...]] = field(default_factory=dict)
    path: str = ""
    #: of each rank
    children: Mapping[int, tuple[Child, ...]] = field(default_factory=dict)
    steps: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.points or self.children)


@dataclass(frozen=True)
class Growth:
    """`slope` in bytes a step, `levels` of the six parts, `epochs` that ended meanwhile (-1: not known).

    Where it was judged by epochs `levels` are theirs, and `stair` is what each adds.
    """

    slope: float
    levels: tuple[int, ...]
    first: int
    last: int
    epochs: int
    stair: float = 0

    @property
    def pace(self) -> str:
        return f"{gib(self.stair)} an epoch" if self.stair else f"{gib(self.slope)} a step"

    @property
    def total(self) -> int:
        return self.levels[-1] - self.levels[0]


def growth(values: Sequence[tuple[int, int, int]], least: int, share: float) -> Growth | None:
    """The growth of a series of (step, bytes, epochs), in order. None below `least` bytes or `share` of the first
    level."""
    if len(values) < thresholds.FEWEST_POINTS:
        return None
    return _by_step(values, least, share) or _by_epoch(values, least, share)


def since(values: Sequence[tuple[int, int, int]], trend: Growth) -> int:
    """The step at which it began: before the judged part, as far back as what it was is on the line."""
    begun = trend.first
    for step, size, _ in reversed([value for value in values if value[0] < trend.first]):
        if abs(size - trend.levels[0] + trend.slope * (trend.first - step)) > thresholds.ON_THE_LINE * trend.total:
            break
        begun = step
    return begun


def _by_step(values: Sequence[tuple[int, int, int]], least: int, share: float) -> Growth | None:
    begin = values[0][0] + (values[-1][0] - values[0][0]) * thresholds.WARM_UP
    kept = [value for value in values if value[0] >= begin]
    lowest = _lowest(kept)
    if lowest is None:
        return None
    levels = [value for value, _ in lowest]
    total, middle = levels[-1] - levels[0], thresholds.PARTS // 2
    if total < max(least, share * levels[0]) or not rises_evenly(levels, thresholds.EVEN):
        return None
    if levels[-1] - levels[middle] < thresholds.GOES_ON * (levels[middle - 1] - levels[0]):
        return None
    steps = lowest[-1][1] - lowest[0][1]
    epochs = kept[-1][2] - kept[0][2] if kept[-1][2] >= 0 else -1
    return Growth(total / steps, tuple(levels), kept[0][0], kept[-1][0], epochs)


def rises_evenly(levels: Sequence[float], share: float) -> bool:
    """Whether each level exceeds the one before by at least `share` of the mean rise."""
    return min(b - a for a, b in pairwise(levels)) >= share * (levels[-1] - levels[0]) / (len(levels) - 1)


def _lowest(kept: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]] | None:
    """The lowest value of each part, and its step: what spikes and sawteeth add is given back."""
    first, length = kept[0][0], (kept[-1][0] - kept[0][0]) / thresholds.PARTS
    if length <= 0:
        return None
    parts: list[list[tuple[int, int]]] = [[] for _ in range(thresholds.PARTS)]
    for step, value, _ in kept:
        parts[min(thresholds.PARTS - 1, int((step - first) / length))].append((value, step))
    return [min(part) for part in parts] if all(len(part) > 1 for part in parts) else None


def _by_epoch(values: Sequence[tuple[int, int, int]], least: int, share: float) -> Growth | None:
    """The growth from epoch to epoch, without the first one, which is the warm-up. The newest may still run: it only
    has to begin higher."""
    looks = grouped((value[2], value) for value in values)
    *epochs, newest = sorted(looks)[1:] or [-1]
    whole = [looks[epoch] for epoch in epochs]
    if len(epochs) < thresholds.EPOCHS or min(map(len, whole)) < thresholds.POINTS_OF_EPOCH:
        return None
    if epochs[-1] - epochs[0] >= len(epochs):
        return None
    levels = [one[-1][1] for one in whole]
    rises = [after - before for before, after in pairwise(levels)]
    total, half, steps = levels[-1] - levels[0], len(rises) // 2, whole[-1][-1][0] - whole[0][-1][0]
    # A last look stands now farther from its epoch's end and now nearer: of what each fills and lets go it sees more.
    chance = median(abs(after - before) for one in whole for (_, before, _), (_, after, _) in pairwise(one))
    lowest = [min(size for _, size, _ in one) for one in (*whole, looks[newest])]
    if steps <= 0 or total < max(least, share * levels[0], 2 * chance):
        return None
    if lowest[-2] - lowest[0] < thresholds.LOWEST * total or (
        lowest[-1] - lowest[-2] < thresholds.LOWEST * total / len(rises)
    ):
        return None
    if min(rises) < thresholds.ALIKE * max(rises) or sum(rises[-half:]) < thresholds.AS_MUCH * sum(rises[:half]):
        return None
    return Growth(total / steps, tuple(levels), whole[0][-1][0], whole[-1][-1][0], len(rises), total / len(rises))


def rank_series(lines: Sequence[tuple[int, Mapping[str, Any]]], path: str,
                facts: Sequence[tuple[int, Mapping[str, Any]]],
                course: Sequence[tuple[int, Mapping[str, Any]]] = ()) -> MemorySeries | None:  # fmt: skip
    """The series of a rank's memory.jsonl and facts; None without `--memory`. `course`: where `lines` is cut."""
    points = [point for _, line in lines if (point := _point(line)) is not None]
    found = [(n, fact) for n, fact in facts if fact.get("kind") == "census"]
    cycles = tuple(_cycle(n, fact) for n, fact in facts if fact.get("kind") == "cycles")
    if not points and not found:
        return None
    number, census = found[-1] if found else (None, {})
    growing = tuple(dicts(census.get("growing")))
    loads = (integer(census, "epochs") or 0) >= 0 and bool(census)
    spread = tuple(point for _, line in course if (point := _point(line)) is not None)
    return MemorySeries(
        tuple(points), path, growing, integer(census, "step"), number, loads, cycles, spread or tuple(points)
    )


def _cycle(line: int, fact: Mapping[str, Any]) -> Cycle:
    value = fact.get("owners")
    owners = value if isinstance(value, dict) else {}
    owner = max(owners, key=lambda name: integer(owners, name) or 0, default="")
    freed, size, step = (integer(fact, name) or 0 for name in ("freed", "bytes", "step"))
    return Cycle(freed, size, owner, step, line)


def _point(line: Mapping[str, Any]) -> Point | None:
    """Max_MA counts since the start or the script's last reset. Where it exceeds what is reserved, it is old."""
    phases = line.get("phases")
    figures = [p for p in phases.values() if isinstance(p, dict)] if isinstance(phases, dict) else []
    step, last = integer(line, "step"), figures[-1] if figures else {}
    anon = integer(last, "ANON")
    if step is None or anon is None:
        return None
    epochs = integer(line, "epochs")
    most = {name: [v for p in figures if (v := integer(p, name)) is not None] for name in ("MA", "Max_MA", "CA")}
    within = [min(peak, held) for p in figures if (peak := integer(p, "Max_MA")) and (held := integer(p, "CA"))]
    return Point(
        step=step,
        anon=anon,
        epochs=-1 if epochs is None else epochs,
        within=max(v for p in figures if (v := integer(p, "ANON")) is not None) - anon,
        asked=integer(last, "DATA"),
        standing=integer(last, "MA"),
        allocated=max(most["MA"], default=None),
        peak=max(most["MA"] + within, default=None),
        highest=max(most["Max_MA"], default=None),
        reserved=max(most["CA"], default=None),
        used=integer(line, "NV"),
        total=integer(line, "NV_total"),
    )


def node_memory(lines: Sequence[tuple[int, Mapping[str, Any]]], path: str) -> NodeMemory:
    """The memory of a node's ranks, and what was left, from its metrics.jsonl."""
    points: dict[int, list[Point]] = {}
    headroom, of, steps = None, "", dict[int, int]()
    for _, line in lines:
        ranks = dicts(line.get("ranks"))
        seen: dict[int, int] = {}
        for row in ranks:
            rank, step, anon, epochs = (integer(row, name) for name in ("rank", "step", "anon", "epochs"))
            if rank is not None and step is not None and anon:  # one that is gone has nothing
                points.setdefault(rank, []).append(Point(step, anon, -1 if epochs is None else epochs))
                seen[rank] = step
        memory, dead = line.get("memory"), any(row.get("alive") is False for row in ranks)
        if isinstance(memory, dict) and seen and not dead and (left := _headroom(memory)) is not None:
            (headroom, of), steps = left, seen
    return NodeMemory(headroom, of, {rank: tuple(p) for rank, p in points.items()}, path, children(lines), steps)


def _headroom(memory: Mapping[str, Any]) -> tuple[int, str] | None:
    """The nearer of the machine's end and the control group's; what the kernel can give back of files is not in use."""
    available, limit, current = (integer(memory, n) for n in ("available", "limit", "current"))
    found = [] if available is None else [(available, "the machine")]
    if limit is not None and current is not None:
        found.append((max(0, limit - current + (integer(memory, "reclaimable") or 0)), "its control group's limit"))
    return min(found, default=None)


#: Of each rank so many processes, the newest: a loader without persistent workers has new ones in each epoch.
_MAX_CHILDREN = 64


@dataclass(frozen=True)
class Child:
    """`points` are (the rank's step, bytes that are no file's and not shared, ends of the rank's epochs or -1)."""

    pid: int
    command: str
    points: tuple[tuple[int, int, int], ...]

    @property
    def grown(self) -> int:
        """Since it was smallest; 0 where that is not worth a word."""
        least = min(size for _, size, _ in self.points)
        total = self.points[-1][1] - least
        return total if total >= max(thresholds.CHILD.bytes, thresholds.CHILD.share * least) else 0

    @property
    def since(self) -> int:
        """The step up to which it had not begun to: what it was then is in the first tenth of what it grew by."""
        least, total = min(size for _, size, _ in self.points), self.grown
        return max(step for step, size, _ in self.points if size <= least + thresholds.ON_THE_LINE * total)

    @property
    def who(self) -> str:
        words = "its loader's worker" if self.command.startswith("pt_data_") else "its child"
        return f"{words} {self.pid}" + (f" ({self.command})" if self.command and words == "its child" else "")


def children(lines: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, tuple[Child, ...]]:
    """The children of each rank, from lines of metrics.jsonl. Other lines are skipped."""
    found: dict[int, dict[int, list[tuple[int, int, int]]]] = {}
    commands: dict[int, str] = {}
    for _, line in lines:
        for row in dicts(line.get("ranks")):
            rank, looks = integer(row, "rank"), row.get("children")
            for look in looks if rank is not None and isinstance(looks, list) else ():
                if not (isinstance(look, list) and len(look) == 3 and all(type(n) is int for n in look[:2])):
                    continue
                pid, size, command = look
                commands[pid] = str(command)[:60]
                of = found.setdefault(rank or 0, {})
                epochs = integer(row, "epochs")
                step = integer(row, "step") or 0
                of.setdefault(pid, []).append((step, size, -1 if epochs is None else epochs))
    return {
        rank: tuple(Child(pid, commands[pid], tuple(points)) for pid, points in list(of.items())[-_MAX_CHILDREN:])
        for rank, of in found.items()
    }


@dataclass(frozen=True)
class DevicePeak:
    """`step` is of the first line that has it, `before` of the line before that one, which had less."""

    bytes: int
    step: int
    before: int | None
    #: steps whose lines were read: how many, from where to where
    steps: int
    first: int
    last: int

    @property
    def when(self) -> str:
        if self.before is None:
            return f"by step {self.step}"
        return f"in step {self.step}" if self.step - self.before < 2 else f"between steps {self.before} and {self.step}"


def device_peak(series: MemorySeries) -> DevicePeak | None:
    """None where no line is about a GPU."""
    read = sorted({(p.step, p.highest) for p in (*series.course, *series.points) if p.highest})
    if not read:
        return None
    most = max(highest for _, highest in read)
    place = next(n for n, (_, highest) in enumerate(read) if highest == most)
    before = read[place - 1][0] if place else None
    return DevicePeak(most, read[place][0], before, len({step for step, _ in read}), read[0][0], read[-1][0])
