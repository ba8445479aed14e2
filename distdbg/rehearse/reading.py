"""Read from a run's directory what a rehearsal shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distdbg.collect.files.bounded_read import read_whole
from distdbg.collect.files.plain_pickle import UnreadablePickle, load
from distdbg.collect.files.snapshot_files import SnapshotUnreadable, read_snapshot_file
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.jsonl import objects
from distdbg.evidence.memory.answer import MemoryAnswer
from distdbg.evidence.recorder.schedule import Enqueued, read_schedule, with_modules
from distdbg.evidence.records import Events
from distdbg.model import Report, Unknown, fold_ranks
from distdbg.protocol import chosen_ranks
from distdbg.protocol.facts import CollectiveModules, StepEnds, ValueRead
from distdbg.rehearse.branches import branch_of
from distdbg.rehearse.rehearsal import Rehearsal, rehearsal
from distdbg.rundir import Attempt, RunDir
from distdbg.rundir.reading import open_regular

_MOST_FACTS = 16 << 20
_MOST_SOURCE = 4 << 20
#: Reading one takes a second or two.
_MOST_SNAPSHOTS = 8
_NO_RECORDER = "the script was ended early, or has not used NCCL"


@dataclass(frozen=True)
class ValueBranch:
    """A branch that a value of the device decides; `where` is file and line, `ranks` have read it."""

    words: str
    where: str
    loops: bool
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class RehearsedRun:
    """`snapshots`: the newest of the rank that ran out of memory, else of that with the highest peak, and of one rank
    for each other peak. `report` is the verdict of the run. `branches` are decided by values that no device
    computes."""

    report: Report
    rehearsal: Rehearsal
    snapshots: tuple[MemoryAnswer, ...]
    unknown: tuple[Unknown, ...]
    branches: tuple[ValueBranch, ...] = ()

    @property
    def fits(self) -> bool | None:
        """None where the job did not come to its end, for another reason than its memory."""
        if self.rehearsal.ran_out:
            return False
        return True if self.rehearsal.peaks and self.report.outcome == "succeeded" else None


def read_rehearsal(run: RunDir) -> RehearsedRun:
    """Of the newest attempt. What cannot be read is unknown."""
    evidence = load_evidence(run)
    chosen = chosen_ranks.of_job(evidence.job)
    whole = load_evidence(run, whole_groups=True) if chosen is not None else evidence
    attempt = run.attempt(evidence.attempt)
    unknown: list[Unknown] = []
    schedules: dict[int, tuple[Enqueued, ...]] = {}
    unread: dict[str, list[int]] = {}
    ends: dict[int, list[int]] = {}
    reads: dict[tuple[str, int, str, str], list[int]] = {}
    for rank, files in attempt.ranks().items():
        facts = objects(read_whole(files.facts, _MOST_FACTS)[0] or "")[0]
        ends[rank] = _step_ends(facts)
        modules = CollectiveModules.newest(facts)
        for _, read in ValueRead.among(facts):
            reads.setdefault((read.file, read.line, read.how, read.inside), []).append(rank)
        try:
            with open_regular(files.operations) as file:
                schedules[rank] = with_modules(read_schedule(load(file)), modules.spans if modules else ())
        except (OSError, UnreadablePickle) as error:
            gone = isinstance(error, FileNotFoundError)
            unread.setdefault(_NO_RECORDER if gone else str(error), []).append(rank)
    for why, ranks in unread.items():
        unknown.append(Unknown(f"the collectives of ranks {fold_ranks(ranks)}", why))
    report = build_report(evidence)
    ran_out = sorted({rank for finding in report.findings if finding.id == "cuda-oom" for rank in finding.ranks})
    found = rehearsal(whole, schedules, ends, ran_out, chosen)
    snapshots = []
    for number, rank in enumerate(_ranks_to_read(found)):
        snapshot, why = _newest_snapshot(run, attempt, rank)
        if snapshot is not None:
            snapshots.append(replace(snapshot, rank=rank))
        elif not number:
            unknown.append(Unknown(f"what fills the device of rank {rank}", why))
    return RehearsedRun(report, found, tuple(snapshots), tuple(unknown), tuple(_branches(reads)))


def _ranks_to_read(found: Rehearsal) -> list[int]:
    """One for each peak that differs; the fullest first."""
    fullest = found.ran_out[0] if found.ran_out else found.highest.rank if found.highest is not None else None
    ranks: dict[object, int] = {}
    for peak in sorted(found.peaks, key=lambda peak: (peak.rank != fullest, -peak.allocated, peak.rank)):
        ranks.setdefault((peak.allocated, peak.reserved), peak.rank)
    first = [fullest] if fullest is not None else []
    return list(dict.fromkeys([*first, *ranks.values()]))[:_MOST_SNAPSHOTS]


def _branches(reads: Mapping[tuple[str, int, str, str], Sequence[int]]) -> Iterator[ValueBranch]:
    for (file, line, how, inside), ranks in reads.items():
        text = read_whole(Path(file), _MOST_SOURCE)[0] or ""
        if inside:  # it is torch that decides: whether an optimizer steps, as an example
            lines = text.splitlines()
            words = f"{lines[line - 1].strip() if 0 < line <= len(lines) else ''} (decided in torch/{inside})"
            yield ValueBranch(words, f"{file}:{line}", False, tuple(ranks))
        elif (branch := branch_of(text, line, how)) is not None:
            yield ValueBranch(branch.words, f"{file}:{branch.line}", branch.loops, tuple(ranks))


def _step_ends(facts: Events) -> list[int]:
    newest = StepEnds.newest(facts)
    return [end for end in newest.ends if isinstance(end, int)] if newest is not None else []


def _newest_snapshot(run: RunDir, attempt: Attempt, rank: int) -> tuple[MemoryAnswer | None, str]:
    """Its answer for the device that holds most; or None, and why."""
    kept = [path for path in attempt.rank(rank).memory.glob("*.pickle.gz") if path.is_file()]
    path = max(kept, key=lambda path: path.stat().st_mtime, default=None)
    if path is None:
        return None, "no memory snapshot was taken: the script ended before its second step"
    try:
        answers = read_snapshot_file(path, run.relative(path))
    except SnapshotUnreadable as error:
        return None, str(error)
    return max(answers, key=lambda answer: answer.peak.active, default=None), "its snapshot is empty"
