"""The picture of a dump: where every rank stands, the last collectives of their groups, and who waits for whom.

`picture_of` makes it; report/ draws it as text and as part of the page. Who waits for whom is hang.py's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.timeline.standing import Standing
from distdbg.diagnosis.waits.collectives import GroupTimeline, group_timelines
from distdbg.diagnosis.waits.graph import Wait
from distdbg.diagnosis.waits.hang import Hang
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.frames import package_of
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.call_tree import CallTree, call_tree, natives_of
from distdbg.evidence.stacks.classes import Paths, all_paths, classes_of
from distdbg.evidence.stacks.threads import Frame

#: Up to so many ranks each has a row of its own on the page.
FOLD_ABOVE = 16
_STATES = {"R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "zombie",
           "I": "idle", "X": "dead"}  # fmt: skip


#: paths, what the rank does, process state, what the main thread waits in, phase
_Kind = tuple[Paths, str, str, str, str]


@dataclass(frozen=True, slots=True)
class StackClassView:
    """Ranks of one stack, process state and phase. `user` is the innermost frame of the user's, `top` the innermost of
    all; `quiet_s` the shortest and longest time since anything was heard of them."""

    ranks: RankSet
    nodes: tuple[str, ...]
    user: Frame | None
    top: str
    source: str
    does: str
    state: str
    waits_in: str
    phase: str
    steps: tuple[int, int] | None
    quiet_s: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Picture:
    """`culprits` come first, and are marked. `timelines` are folded, for text; `lanes` have a row for each rank where
    there are few, for the page."""

    tree: CallTree
    places: tuple[StackClassView, ...]
    timelines: tuple[GroupTimeline, ...]
    lanes: tuple[GroupTimeline, ...]
    waits: tuple[Wait, ...]
    culprits: RankSet
    t: float


def picture_of(
    dump: Dump, *, groups: Sequence[Group] = (), hang: Hang | None = None, culprits: Iterable[int] = ()
) -> Picture:
    """`groups` are waits.groups' and `hang` hang.hang_of's, None where nothing hangs; `culprits` are to be marked."""
    paths = all_paths(dump)
    return Picture(
        tree=call_tree(classes_of(paths), dump.line, natives_of(dump)),
        places=tuple(_places(dump, paths, hang.standings if hang is not None else {})),
        timelines=tuple(group_timelines(dump, groups)),
        lanes=tuple(group_timelines(dump, groups, columns=12, fold_above=FOLD_ABOVE)),
        waits=hang.waits if hang is not None else (),
        culprits=RankSet.of(culprits),
        t=dump.t,
    )


def _places(dump: Dump, paths: Mapping[int, Paths], standings: Mapping[int, Standing]) -> list[StackClassView]:
    """The smallest first: a place where few stand is the one to look at."""
    same: dict[_Kind, list[RankDump]] = {}
    for rank in dump.ranks.values():
        process, page = rank.last.process, rank.last.page
        state = _STATES.get(process.state, process.state or "gone")
        waits_in = process.syscall or process.wchan
        if process.target:
            waits_in = f"{waits_in} on {process.target}"
        standing = standings.get(rank.rank)
        does = standing.doing.value if standing is not None else ""
        kind = (paths[rank.rank], does, state, waits_in, page.phase if page else "")
        same.setdefault(kind, []).append(rank)
    places = [_place(dump, kind, ranks) for kind, ranks in same.items()]
    gone = {rank: own for rank, own in paths.items() if rank not in dump.ranks}
    for own, ranks in classes_of(gone).classes():
        places.append(StackClassView(ranks, (), None, str(own[0][-1]), "", "", "unknown", "", "", None, None))
    return sorted(places, key=lambda place: (len(place.ranks), place.ranks.first))


def _place(dump: Dump, kind: _Kind, ranks: Sequence[RankDump]) -> StackClassView:
    paths, does, state, waits_in, phase = kind
    frames = [step for step in paths[0] if isinstance(step, Frame)]
    user = next((frame for frame in reversed(frames) if frame.users), None)
    top = paths[0][-1]
    pages = [rank.last.page for rank in ranks if rank.last.page is not None]
    steps = [page.step for page in pages if page.step is not None]
    quiet = [page.quiet_s for page in pages if page.quiet_s is not None]
    return StackClassView(
        ranks=RankSet.of(rank.rank for rank in ranks),
        nodes=tuple(dict.fromkeys(rank.host for rank in ranks)),
        user=user,
        top=top if isinstance(top, str) else "" if top is user else f"{package_of(top.file)}: {top.function}",
        source=dump.line(user.file, user.line) if user is not None else "",
        does=does,
        state=state,
        waits_in=waits_in,
        phase=phase,
        steps=(min(steps), max(steps)) if steps else None,
        quiet_s=(min(quiet), max(quiet)) if quiet else None,
    )
