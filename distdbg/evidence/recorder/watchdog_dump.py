"""Join the recorders that torch's watchdogs wrote at a timeout, or their lines in the logs, to the dump of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from distdbg.evidence.dump import NOT_LOOKED_AT, Dump, Look, RankDump
from distdbg.evidence.recorder.log import RecorderLog
from distdbg.evidence.run import RankRecord
from distdbg.protocol.dump import ProcessState

#: (recorder, path to cite) of a rank
Written = Mapping[int, tuple[RecorderLog, str]]

_NO_STACK = "torch's watchdog ended the job before the stacks were sampled"
_NOTHING = "neither its watchdog nor its flight recorder left anything"


def join_recorders(dump: Dump | None, written: Written, records: Sequence[RankRecord], empty: Dump) -> Dump:
    """The dump of a job that torch's watchdogs ended.

    A dump with stacks that shows the same operations stays, and gets the recorders that it lacks. One without stacks,
    or from before the ranks went on, is replaced. `empty` has the numbers of signatures.
    """
    if dump is not None and dump.reason != "death" and not _went_on(dump, written):
        return replace(dump, ranks={rank: _beside(had, written.get(rank)) for rank, had in dump.ranks.items()})
    before = dump.ranks if dump is not None else {}
    found = {
        record.rank: _rank(record, *written[record.rank], before.get(record.rank))
        for record in records
        if record.rank in written
    }
    missing = {record.rank: _NOTHING for record in records if record.rank not in written}
    ended = max((record.ended or 0.0 for record in records), default=0.0)
    return replace(empty, t=ended, reason="watchdog", ranks=found, missing=missing)


def _went_on(dump: Dump, written: Written) -> bool:
    """A rank has enqueued more since. Only recorders tell that: the watchdog counts transfers with the collectives."""
    for rank, (now, _) in written.items():
        had = dump.ranks[rank].recorder if rank in dump.ranks else None
        for key, log in now.groups.items() if had is not None and now.entries else ():
            before = had.groups.get(key) if had is not None else None
            if log.last > (before.last if before is not None else 0):
                return True
    return False


def _beside(had: RankDump, written: tuple[RecorderLog, str] | None) -> RankDump:
    if written is None or had.recorder is not None or not had.looks:
        return had
    last = replace(had.last, recorder=written[0], recorder_path=written[1])
    return replace(had, looks=(*had.looks[:-1], last))


def _rank(record: RankRecord, log: RecorderLog, path: str, before: RankDump | None) -> RankDump:
    process = ProcessState(state=NOT_LOOKED_AT)
    look = Look(0.0, process, recorder=log, recorder_path=path, missing={"stacks": _NO_STACK})
    calls = before.calls if before is not None else ()
    return RankDump(record.rank, record.pid or 0, record.node_rank, record.host, (look,), calls=calls)
