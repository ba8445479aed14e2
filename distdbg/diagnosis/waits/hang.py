"""Why a job stands still: the culprits of a dump, each with how it was found. The checks give them their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.timeline.call_lines import ModelPlace, place_of
from distdbg.diagnosis.timeline.device import OpenOperation, known_to_all, open_operations, stuck_devices
from distdbg.diagnosis.timeline.groups import Group, groups
from distdbg.diagnosis.timeline.judge import stand
from distdbg.diagnosis.timeline.life import life, runs_at_times
from distdbg.diagnosis.timeline.liveness import PARTLY_QUIET_S, QUIET_S
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.branches import RankLines
from distdbg.diagnosis.waits.ends import Ends, find_ends
from distdbg.diagnosis.waits.graph import Wait, find_waits
from distdbg.diagnosis.waits.mismatch import Mismatch, earliest_mismatch
from distdbg.diagnosis.waits.movement import elsewhere, moved_ranks
from distdbg.diagnosis.waits.operation_lines import (
    ThreadOperation,
    find_thread_operations,
    lines_of,
    python_name,
)
from distdbg.diagnosis.waits.roots import other_root
from distdbg.diagnosis.waits.store_keys import with_setters
from distdbg.diagnosis.waits.transfers import peer_of
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.logs.messages import OF_WATCHDOG
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks.threads import Frame
from distdbg.protocol.launcher_events import MovingAgain, Stalled, WentOn


@dataclass(frozen=True)
class Culprit:
    """Ranks that others wait for and that wait for nobody: they stand in one place, doing one thing."""

    ranks: tuple[int, ...]
    standing: Standing
    #: those that end at these ranks, then those that end at who waits in them, and so on
    waits: tuple[Wait, ...]


@dataclass(frozen=True, eq=False)
class Hang:
    """What a dump shows. `moved` are the ranks that went on between the two looks.

    Then nothing hangs for good, but for ranks that none of those has to do with: other groups may well go on.
    """

    dump: Dump
    standings: Mapping[int, Standing]
    groups: tuple[Group, ...]
    waits: tuple[Wait, ...]
    culprits: tuple[Culprit, ...]
    circles: tuple[tuple[int, ...], ...]
    complete: tuple[Wait, ...]
    mismatch: Mismatch | None
    moved: tuple[int, ...]
    #: seconds since any rank was heard, None where no heartbeat page was had
    quiet_s: float | None
    #: what moves though nothing is heard, in words; empty for nothing, and where a detector has looked for it before
    life: str = ""
    #: no rank has made a step or a call of torch.distributed, and the launch has not called the job hung: what they
    #: wait for may still come
    starting: bool = False
    #: by rank, the user's lines that began what its device, or another thread of it, waits in, innermost first
    enqueued: Mapping[int, tuple[Frame, ...]] = field(default_factory=dict)
    #: ranks of which two threads use one group: the operation of the thread that their standing does not describe
    of_threads: Mapping[int, ThreadOperation] = field(default_factory=dict)
    #: nothing was collected of these ranks, and at least one of them has not come to what all others wait in
    unread: tuple[int, ...] = ()
    #: by rank, where in the model that operation belongs, as far as it is known
    places: Mapping[int, ModelPlace] = field(default_factory=dict)

    @property
    def stands(self) -> bool:
        """True where it is known that nothing moves: by the detector, or by the pages' own age."""
        if self.moved:
            return bool(self.culprits or self.circles)
        if self.life:
            return False
        return self.dump.quiet_s is not None or self.quiet_s is None or self.quiet_s >= QUIET_S

    def may_work(self, culprit: Culprit) -> bool:
        """In a dump that was asked for by hand: it was heard a while ago, or nobody listens and it went from line to
        line. It evaluates, loads or waits, and goes on."""
        if not culprit.standing.passes or self.dump.quiet_s is not None:
            return False
        if culprit.standing.busy:
            return True
        quiet_s = self.quiet_of(culprit.ranks)
        if quiet_s is not None:
            return quiet_s < PARTLY_QUIET_S
        if culprit.standing.doing is Doing.DEVICE:
            return True  # only heartbeats tell a kernel that never ends from a long one
        return self.computes(culprit) or (not culprit.waits and self.runs_at_times(culprit))

    def computes(self, culprit: Culprit) -> bool:
        """In Python, and between the looks a rank went on to another line: in circles or forward, nobody can tell."""
        had = (self.dump.ranks.get(rank) for rank in culprit.ranks)
        return culprit.standing.doing is Doing.PYTHON and any(elsewhere(dump) for dump in had if dump is not None)

    def runs_at_times(self, culprit: Culprit) -> bool:
        return any(runs_at_times(had) for r in culprit.ranks if (had := self.dump.ranks.get(r)) is not None)

    def quiet_of(self, ranks: Iterable[int]) -> float | None:
        """Seconds since one of these was heard, None where nobody listens."""
        return _least_quiet(had for r in ranks if (had := self.dump.ranks.get(r)) is not None)

    def frame_of(self, rank: int) -> Frame | None:
        """The line of the operation that its device waits in, else the user's line that its host is at."""
        lines = self.enqueued.get(rank)
        return lines[0] if lines else self.standings[rank].frame

    def frames_of(self, rank: int) -> tuple[Frame, ...]:
        """The same with the lines that called it, innermost first."""
        return self.enqueued.get(rank) or self.standings[rank].frames

    @cached_property
    def lines(self) -> RankLines:
        frames = {rank: self.frames_of(rank) for rank in self.standings}
        return RankLines(frames, {r: s.function for r, s in self.standings.items()}, self.dump.sources)

    def place_of(self, waits: Iterable[Wait]) -> ModelPlace:
        """Where in the model the operations of these waits belong; empty where ranks are in different places."""
        found = {self.places.get(rank, ModelPlace()) for wait in waits for rank in wait.waiting}
        return found.pop() if len(found) == 1 else ModelPlace()

    def has_all_members(self, wait: Wait) -> bool:
        """Whether it is known of every member of the wait's group which operations it has begun."""
        groups = [g for g in self.groups if g.name == wait.group and set(wait.waiting) <= set(g.ranks)]
        return all(group.told and rank in group.logs for group in groups for rank in group.ranks)

    def waits_for(self, ranks: Iterable[int]) -> tuple[Wait, ...]:
        wanted = set(ranks)
        return tuple(w for w in self.waits if wanted & set(w.awaited))


@lru_cache(maxsize=1)
def hang_of(evidence: RunEvidence) -> Hang | None:
    """None where no dump was taken, or the job went on after it, or torch wrote it because a rank failed."""
    dump = evidence.dump
    if dump is None or dump.reason == "death" or not dump.ranks or _went_on(evidence, dump):
        return None
    if dump.reason == "watchdog" and dump.ranks.keys() <= {f.rank.rank for f in failures(evidence) if _is_error(f)}:
        return None
    dump = _as_detected(evidence, dump)
    records = {record.rank: record for record in evidence.ranks}
    known = groups(dump, records)
    opened = open_operations(dump, known)
    standings, waits, found = _follow(dump, records, known, opened)
    moved = moved_ranks(dump, waits, standings)
    culprits = tuple(_culprits(found.sinks if waits else _alone(evidence, dump), standings, waits))
    circles, complete, mismatch = found.circles, found.complete, _mismatch(dump, known, waits, standings, found.sinks)
    older = find_thread_operations(dump, known, waits, standings)
    if moved:
        apart = _apart(dump, moved)
        culprits = tuple(
            c for c in culprits if c.waits and apart.issuperset(c.ranks) and apart.issuperset(_in(c.waits))
        )
        circles = tuple(c for c in circles if apart.issuperset(c))
        complete, mismatch = (), None
    return Hang(
        dump=dump,
        standings=standings,
        groups=tuple(known),
        waits=tuple(waits),
        culprits=culprits,
        circles=circles,
        complete=complete,
        mismatch=mismatch,
        moved=moved,
        quiet_s=_least_quiet(dump.ranks.values()),
        life=life(dump, waiting=bool(waits)) if dump.quiet_s is None else "",
        starting=dump.reason == "start" and not is_hung(evidence),
        unread=found.unread,
        enqueued={
            rank: lines
            for rank, operation in opened.items()
            if (lines := lines_of(dump, rank, operation, known, standings[rank].frames))
        }
        | {rank: operation.frames for rank, operation in older.items() if dump.ranks[rank].recorder is not None},
        of_threads={rank: operation for rank, operation in older.items() if operation.thread},
        places={
            rank: place_of(dump.ranks[rank], operation.created, python_name(dump, operation))
            for rank, operation in opened.items()
        },
    )


def _is_error(failure: RankFailure) -> bool:
    """The rank failed otherwise than by a timeout: torch's backend nccl2 writes the recorder then, too."""
    timed_out = failure.known is not None and failure.known.id in OF_WATCHDOG
    return not (timed_out or failure.rank.ended_by_watchdog)


def _least_quiet(ranks: Iterable[RankDump]) -> float | None:
    pages = [had.last.page for had in ranks if had.last.page]
    return min((page.quiet_s for page in pages if page.quiet_s is not None), default=None)


def is_hung(evidence: RunEvidence) -> bool:
    """It stood still, as its launcher saw it, and was not seen to move again."""
    return _stalled(evidence) is not None


def _stalled(evidence: RunEvidence) -> Stalled | None:
    """The event by which the launcher said so."""
    events = [(place, event) for place, (_, event) in enumerate(evidence.events)]
    stalled = [(place, event) for place, event in Stalled.among(events) if event.attempt == evidence.attempt]
    moved = [place for place, event in MovingAgain.among(events) if event.attempt == evidence.attempt]
    return stalled[-1][1] if stalled and stalled[-1][0] > max(moved, default=-1) else None


def _as_detected(evidence: RunEvidence, dump: Dump) -> Dump:
    """A dump that somebody asked for once the launch had called the job hung need not find that out anew."""
    said = _stalled(evidence)
    if dump.quiet_s is not None or said is None:
        return dump
    after = dump.t - (said.t or 0.0)
    return replace(dump, quiet_s=(said.quiet_s or 0.0) + after) if after >= 0 else dump


def _apart(dump: Dump, moved: Iterable[int]) -> set[int]:
    """Ranks that have been silent for so long that they hang, whatever the others do."""
    return {
        rank for rank, had in dump.ranks.items() if had.last.page and (had.last.page.quiet_s or 0.0) >= PARTLY_QUIET_S
    }.difference(moved)


def _in(waits: Iterable[Wait]) -> set[int]:
    return {rank for wait in waits for rank in wait.waiting}


def _follow(
    dump: Dump, records: Mapping[int, RankRecord], known: list[Group], opened: Mapping[int, OpenOperation]
) -> tuple[dict[int, Standing], list[Wait], Ends]:
    """Where all stand, what they wait for, and where that ends.

    A main thread that waits for a thread of its own is taken at that one's word, unless that closes a circle: then the
    thread may well wait for those who wait for the main thread, and its standing says nothing of why that one waits.
    """
    own: set[int] = set()
    transfers = [(rank, one) for rank, operation in opened.items() for one in operation.transfers]
    peers = {peer for rank, one in transfers if (peer := peer_of(dump.ranks[rank], one)) is not None}
    named = peers.union(*(group.ranks for group in known)) - dump.ranks.keys()
    missing = {**dict.fromkeys(sorted(named), "the dump has no part of it"), **dump.missing}
    stuck = stuck_devices(known, opened, dump.signatures)
    while True:
        standings = {
            rank: stand(had, records.get(rank), dump, delegates=rank not in own) for rank, had in dump.ranks.items()
        }
        standings |= {rank: _unseen(rank, why, records.get(rank)) for rank, why in missing.items()}
        standings |= {rank: _nowhere(rank) for rank in _done_by_peers(standings, known)}
        standings |= with_setters(standings, dump)
        standings |= {rank: _on_device(dump, rank, found, known) for rank, found in stuck.items()}
        ended = {rank for rank, standing in standings.items() if standing.doing is Doing.ENDED}
        # a dump while the job ends: a wait among ranks that are all gone is over
        waits = [w for w in find_waits(dump, records, standings, known, opened)
                 if not ended.issuperset((*w.waiting, *w.awaited))]  # fmt: skip
        found = find_ends(waits, standings, {r for r in missing if standings[r].doing is Doing.UNKNOWN})
        circular = {rank for circle in found.circles for rank in circle if standings[rank].thread}
        if not circular:
            return standings, waits, found
        own |= circular


def _mismatch(
    dump: Dump, known: list[Group], waits: list[Wait], standings: Mapping[int, Standing], sinks: tuple[int, ...]
) -> Mismatch | None:
    """One that nobody waits in any more, and that all have got over, is not why a living rank keeps the others."""
    found = earliest_mismatch(known, dump.signatures, standings)
    if found is not None and not found.open and any(standings[r].doing is not Doing.ENDED for r in sinks):
        return None
    return found or other_root(dump, known, waits)


def _done_by_peers(standings: Mapping[int, Standing], known: Iterable[Group]) -> list[int]:
    """Ranks that only their recorder says to wait, in what a peer has finished: gloo takes note of an end late."""
    alone = [
        r for r, s in standings.items() if s.doing is Doing.COLLECTIVE and not (s.frames or s.sure or s.native_call)
    ]
    return [rank for rank in alone if not any(_waits_in(rank, group) for group in known)]


def _waits_in(rank: int, group: Group) -> bool:
    log = group.logs.get(rank)
    first = log.first_open if log is not None else None
    if log is None or first is None:
        return False
    sequence = log.sequence[first]
    peers = [other for peer, other in group.logs.items() if peer != rank]
    return not any((at := other.index(sequence)) is not None and other.done[at] for other in peers)


def _on_device(dump: Dump, rank: int, operation: OpenOperation, known: list[Group]) -> Standing:
    signature = dump.signatures[operation.signature]
    lines = lines_of(dump, rank, operation, known, ())
    place = f" at {lines[0].file.rpartition('/')[2]}:{lines[0].line}" if lines else ""
    verb = "start" if operation.started is False else "complete"
    phrase = f"has enqueued {signature}{place}, and its device does not {verb} it"
    sure = known_to_all(known[operation.group], operation.sequence)
    return Standing(rank, Doing.DEVICE, phrase, lines[0] if lines else None, lines, signature.operation, sure=sure)


def _nowhere(rank: int) -> Standing:
    because = "there is no stack, and its peers have finished the last operation that its recorder knows"
    return Standing(rank, Doing.UNKNOWN, f"stands somewhere unknown: {because}", because=because)


def _went_on(evidence: RunEvidence, dump: Dump) -> bool:
    """Every rank ended well, or one made steps after the dump, or the launch saw that all went on: what stood still
    then did not for good."""
    if evidence.ranks and all(record.exit_code == 0 for record in evidence.ranks):
        return True
    said = (e for _, e in WentOn.among(evidence.events) if e.attempt == evidence.attempt)
    if any((event.since or event.t or 0.0) > dump.t for event in said):
        return True
    steps = {rank: had.last.page.step for rank, had in dump.ranks.items() if had.last.page}
    return any(r.step is not None and (s := steps.get(r.rank)) is not None and r.step > s + 1 for r in evidence.ranks)


def _unseen(rank: int, why: str, record: RankRecord | None) -> Standing:
    if record is not None and (record.exit_code is not None or record.ended is not None):
        code = f" with exit code {record.exit_code}" if record.exit_code is not None else ""
        return Standing(rank, Doing.ENDED, f"has ended{code}")
    return Standing(rank, Doing.UNKNOWN, f"stands somewhere unknown: {why}", because=why)


def _alone(evidence: RunEvidence, dump: Dump) -> tuple[int, ...]:
    """Where nobody waits for anybody, all stand on their own: then those are it.

    Not before a timeout, which does not run then, nor where nobody has used torch yet: it may just keep a service,
    unless a person gave the time that it has stood. Nor where hosts run ahead of their devices, of which nothing is
    known: those may wait.
    """
    said = _stalled(evidence)
    if any(map(dump.runs_ahead, dump.ranks)) or (dump.reason in ("timeout", "start") and said is None):
        return ()
    if said is not None and said.given:
        return tuple(dump.ranks)
    unused = all(had.last.page and had.last.page.heard == 0 for had in dump.ranks.values())
    if unused and not any(record.initialised for record in evidence.ranks):
        return ()
    return tuple(dump.ranks)


def _culprits(sinks: tuple[int, ...], standings: Mapping[int, Standing], waits: list[Wait]) -> Iterable[Culprit]:
    together: dict[tuple[Doing, str, Frame | None], list[int]] = defaultdict(list)
    for rank in sinks:
        standing = standings[rank]
        together[standing.doing, "" if standing.worker else standing.phrase, standing.frame].append(rank)
    for ranks in together.values():
        yield Culprit(tuple(ranks), standings[ranks[0]], _chain(ranks, waits))


def _chain(ranks: Iterable[int], waits: list[Wait]) -> tuple[Wait, ...]:
    """Nearest first."""
    reached, left = set(ranks), waits
    found: list[Wait] = []
    while near := [wait for wait in left if not reached.isdisjoint(wait.awaited)]:
        left = [wait for wait in left if reached.isdisjoint(wait.awaited)]
        found += near
        reached.update(rank for wait in near for rank in wait.waiting)
    return tuple(found)
