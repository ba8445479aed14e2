"""Why a job stands still: the culprits of a dump, each with how it was found. The checks give them their ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from distdbg.evidence.calls import Call
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.mismatch import Mismatch, earliest_mismatch
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks import Frame
from distdbg.evidence.standing import Doing, Standing, stand
from distdbg.evidence.waits import Group, Wait, ends, find_waits, groups

#: A dump that somebody asked for by hand shows a hang once nothing has moved for so long.
QUIET_S = 10.0


@dataclass(frozen=True)
class Culprit:
    """Ranks that others wait for and that wait for nobody: they stand in one place, doing one thing."""

    ranks: tuple[int, ...]
    standing: Standing
    waits: tuple[Wait, ...]


@dataclass(frozen=True, eq=False)
class Hang:
    """What a dump shows. `moved` are the ranks that went on between the two looks: then nothing hangs for good."""

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

    @property
    def stands(self) -> bool:
        """True where it is known that nothing moves: by the detector, or by the pages' own age."""
        if self.moved:
            return False
        return self.dump.quiet_s is not None or self.quiet_s is None or self.quiet_s >= QUIET_S

    def waits_for(self, ranks: Iterable[int]) -> tuple[Wait, ...]:
        wanted = set(ranks)
        return tuple(w for w in self.waits if wanted & set(w.awaited))


@lru_cache(maxsize=1)
def hang_of(evidence: RunEvidence) -> Hang | None:
    """None where no dump was taken, or the job went on after it."""
    dump = evidence.dump
    if dump is None or dump.reason == "death" or not dump.ranks or _went_on(evidence, dump):
        return None
    records = {record.rank: record for record in evidence.ranks}
    standings = {rank: stand(had, records.get(rank), dump) for rank, had in dump.ranks.items()}
    standings |= {rank: _unseen(rank, why, records.get(rank)) for rank, why in dump.missing.items()}
    known = groups(dump, records)
    waits = find_waits(dump, records, standings, known)
    found = ends(waits, standings)
    moved = tuple(rank for rank, had in dump.ranks.items() if _moved(had))
    quiet = [had.last.page["quiet_s"] for had in dump.ranks.values() if had.last.page and "quiet_s" in had.last.page]
    return Hang(
        dump=dump,
        standings=standings,
        groups=tuple(known),
        waits=tuple(waits),
        culprits=tuple(_culprits(found.sinks, standings, waits)),
        circles=found.circles,
        complete=found.complete,
        mismatch=earliest_mismatch(known, dump.signatures, standings),
        moved=moved,
        quiet_s=min(quiet, default=None),
    )


def _went_on(evidence: RunEvidence, dump: Dump) -> bool:
    """Every rank ended well, or one made steps after the dump: what stood still then did not for good."""
    if evidence.ranks and all(record.exit_code == 0 for record in evidence.ranks):
        return True
    steps = {rank: (had.last.page or {}).get("step") for rank, had in dump.ranks.items()}
    return any(
        r.step is not None and isinstance(s := steps.get(r.rank), int) and r.step > s + 1 for r in evidence.ranks
    )


def _unseen(rank: int, why: str, record: RankRecord | None) -> Standing:
    if record is not None and (record.exit_code is not None or record.ended is not None):
        code = f" with exit code {record.exit_code}" if record.exit_code is not None else ""
        return Standing(rank, Doing.ENDED, f"has ended{code}")
    return Standing(rank, Doing.UNKNOWN, f"stands somewhere unknown: {why}", because=why)


def _moved(had: RankDump) -> bool:
    first, last = had.first.page, had.last.page
    return bool(first and last and first.get("heard") != last.get("heard"))


def _culprits(sinks: tuple[int, ...], standings: Mapping[int, Standing], waits: list[Wait]) -> Iterable[Culprit]:
    """Where nobody waits for anybody, all stand on their own: then those are it."""
    if not waits:
        sinks = tuple(standings)
    together: dict[tuple[Doing, str, Frame | None], list[int]] = defaultdict(list)
    for rank in sinks:
        standing = standings[rank]
        together[standing.doing, "" if standing.worker else standing.phrase, standing.frame].append(rank)
    for ranks in together.values():
        yield Culprit(tuple(ranks), standings[ranks[0]], tuple(w for w in waits if set(ranks) & set(w.awaited)))


def call_of(had: RankDump, created_ns: int, others_ns: Iterable[int]) -> Call | None:
    """The line that began an operation: the newest call before it, unless another operation came in between.

    Operations that C++ begins by itself, such as DDP's reductions, have none.
    """
    call = next((c for c in reversed(had.calls) if c.t <= created_ns), None)
    if call is None or any(call.t <= other < created_ns for other in others_ns):
        return None
    return call
