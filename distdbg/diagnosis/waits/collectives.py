"""The last collectives of each process group, rank by rank: what was begun, what is open, who never came.

Columns are sequence numbers, so ranks are compared by what they called and not by clocks: those of two nodes may
differ by more than a step. Only ranks of one host are compared in time. Ranks that did the same are one lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from distdbg.diagnosis.timeline.groups import Group
from distdbg.evidence.dump import NOT_LOOKED_AT, Dump, RankDump
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.recorder.log import GroupLog

#: Later than the first rank of its host by so much is worth a word.
_LATE_S = 0.1


@dataclass(frozen=True, slots=True)
class Op:
    """One collective of a lane. `t` is its begin in epoch seconds (the median of the lane's ranks), by their hosts'
    clocks; `odd` that it is another one than most ranks have at this number."""

    what: int
    t: float
    done: bool
    odd: bool = False
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranks that did the same. `ops` has None for a column without a record: it was begun if its number is not larger
    than `last`, the number begun last (0: none). `open_s` is for how long the oldest open operation is open."""

    ranks: RankSet
    hosts: tuple[str, ...]
    ops: tuple[Op | None, ...]
    last: int
    open_s: float | None = None


@dataclass(frozen=True, slots=True)
class GroupTimeline:
    """`legend` has what Op.what counts. `alike` counts other groups of this kind that look the same."""

    title: str
    kind: str
    members: RankSet
    columns: tuple[int, ...]
    lanes: tuple[Lane, ...]
    legend: tuple[str, ...]
    t: float
    alike: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host for lane in self.lanes for host in lane.hosts))

    @property
    def stuck(self) -> bool:
        """Something is open, or somebody is behind."""
        return any(lane.open_s is not None for lane in self.lanes) or len({lane.last for lane in self.lanes}) > 1


_Members = list[tuple[RankDump, GroupLog]]


def group_timelines(
    dump: Dump, groups: Iterable[Group], *, columns: int = 8, fold_above: int = 0
) -> list[GroupTimeline]:
    """Every group, those that are stuck first. Up to `fold_above` ranks each has a lane of its own."""
    found = []
    for group in groups:
        members = [(dump.ranks[rank], log) for rank, log in sorted(group.logs.items()) if rank in dump.ranks]
        if any(log.sequence for _, log in members):
            found.append(_timeline(dump, group, members, columns, fold_above))
    found.sort(key=lambda s: (not s.stuck, len(s.lanes) < 2, -len(s.members), s.title))
    return _alike(found)


def _timeline(dump: Dump, group: Group, members: _Members, most: int, fold_above: int) -> GroupTimeline:
    columns = _columns([log for _, log in members], most)
    legend: list[int] = []
    rows: list[tuple[RankDump, GroupLog, tuple[Op | None, ...]]] = []
    for rank, log in members:
        ops: list[Op | None] = []
        for sequence in columns:
            at = log.index(sequence)
            if at is None:
                ops.append(None)
                continue
            number = log.signature[at]
            if number not in legend:
                legend.append(number)
            ops.append(Op(legend.index(number), log.created[at] / 1e9, bool(log.done[at])))
        rows.append((rank, log, tuple(ops)))
    judged = _judged(rows)
    classes: dict[object, list[int]] = {}
    for number, (rank, log, _) in enumerate(rows):
        kind = tuple(op and (op.what, op.done, op.late_s > 0) for op in judged[number])
        classes.setdefault(rank.rank if len(rows) <= fold_above else (kind, log.last), []).append(number)
    lanes = [_lane([rows[n] for n in numbers], [judged[n] for n in numbers]) for numbers in classes.values()]
    description = next((log.description for _, log in members if log.description not in ("", "undefined")), "")
    return GroupTimeline(
        title=group.title,
        kind=description or group.name,
        members=RankSet.of(group.ranks),
        columns=tuple(columns),
        lanes=tuple(sorted(lanes, key=lambda lane: lane.ranks.first)),
        legend=tuple(str(dump.signatures[number]) for number in legend),
        t=max((rank.last.t for rank, _ in members), default=dump.t),
    )


def _columns(logs: Sequence[GroupLog], most: int) -> list[int]:
    """Numbers about the place where the ranks part: the last that all have begun, or the first that is open."""
    newest = max((log.last for log in logs), default=0)
    parted = min((log.last for log in logs), default=0) + 1
    still = [log.sequence[at] for log in logs if (at := log.first_open) is not None]
    middle = min([parted, newest, *still])
    near = {
        s for log in logs if (at := log.index(middle)) is not None for s in log.sequence[max(0, at - most) : at + most]
    }
    known = sorted({s for log in logs for s in log.sequence[-most:]} | near)
    before = [s for s in known if s < middle]
    after = [s for s in known if s >= middle]
    kept = after[: max(most // 2, most - len(before))]
    if newest not in kept and kept:
        kept[-1] = newest
    return [*before[-(most - len(kept)) :], *kept] if most > len(kept) else kept


def _judged(rows: Sequence[tuple[RankDump, GroupLog, tuple[Op | None, ...]]]) -> list[tuple[Op | None, ...]]:
    """Marks what differs from most ranks, and what came late among the ranks of one host."""
    usual: list[set[int]] = []
    first: list[dict[str, float]] = []
    for column in zip(*(ops for _, _, ops in rows), strict=True):
        counts = Counter(op.what for op in column if op is not None)
        most = max(counts.values(), default=0)
        agreed = {what for what, count in counts.items() if count == most}
        usual.append(agreed if len(agreed) == 1 else set())
        begun: dict[str, float] = {}
        for op, (rank, _, _) in zip(column, rows, strict=True):
            if op is not None:
                begun[rank.host] = min(op.t, begun.get(rank.host, op.t))
        first.append(begun)
    return [
        tuple(op and _marked(op, usual[n], first[n][rank.host]) for n, op in enumerate(ops)) for rank, _, ops in rows
    ]


def _marked(op: Op, usual: set[int], first: float) -> Op:
    odd, late = op.what not in usual, op.t - first >= _LATE_S
    return replace(op, odd=odd, late_s=op.t - first if late else 0.0) if odd or late else op


def _lane(rows: Sequence[tuple[RankDump, GroupLog, object]], ops: Sequence[tuple[Op | None, ...]]) -> Lane:
    open_s = list(_open_for(rows))
    return Lane(
        ranks=RankSet.of(rank.rank for rank, _, _ in rows),
        hosts=tuple(dict.fromkeys(rank.host for rank, _, _ in rows)),
        ops=tuple(_middle([op for op in column if op is not None]) for column in zip(*ops, strict=True)),
        last=rows[0][1].last,
        open_s=max(open_s) if open_s else None,
    )


def _open_for(rows: Sequence[tuple[RankDump, GroupLog, object]]) -> Iterator[float]:
    """Begin and look are both by the rank's own clock; 0 where nobody looked, so that the time is not known."""
    for rank, log, _ in rows:
        if (at := log.first_open) is not None:
            looked = rank.last.process is not None and rank.last.process.state != NOT_LOOKED_AT
            yield max(0.0, rank.last.t - log.created[at] / 1e9) if looked else 0.0


def _middle(ops: Sequence[Op]) -> Op | None:
    if not ops:
        return None
    return replace(ops[0], t=median(op.t for op in ops), late_s=max(op.late_s for op in ops))


def _alike(found: Iterable[GroupTimeline]) -> list[GroupTimeline]:
    """Of groups that look the same (a mesh has hundreds), one is kept."""
    kept: dict[object, GroupTimeline] = {}
    for timeline in found:
        lanes = tuple(
            (len(lane.ranks), lane.last, tuple(op and (op.what, op.done) for op in lane.ops)) for lane in timeline.lanes
        )
        key = (timeline.kind, timeline.columns, timeline.legend, lanes)
        kept[key] = replace(kept[key], alike=kept[key].alike + 1) if key in kept else timeline
    return list(kept.values())
