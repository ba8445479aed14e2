"""Read files that others collected: recorder dumps, stacks of py-spy, logs, in any mixture and order.

The content says what a file is, never its suffix; its name says the rank. A file that cannot be used becomes an
Unknown, and the others are still read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from distdbg.collect.files.bounded_read import LineReader, read_bytes, read_whole, size_of
from distdbg.collect.files.log_text import STDIN, LogText, kind_of
from distdbg.collect.files.recorder_files import RecorderReader, RecorderUnreadable
from distdbg.collect.runs.dump_evidence import evidence_of
from distdbg.evidence import jsonl
from distdbg.evidence.dump import NOT_LOOKED_AT, Dump, Look, RankDump
from distdbg.evidence.logs.assembly import JobLogs
from distdbg.evidence.logs.candidates import Candidates
from distdbg.evidence.logs.job import LogReader
from distdbg.evidence.logs.process import LoggedProcess
from distdbg.evidence.logs.rank_names import NameFacts, facts_of_name, rank_of_name
from distdbg.evidence.logs.watchdog import Watchdogs
from distdbg.evidence.native_frames import outermost_wait
from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.evidence.run import UNKNOWN_RANK, NodeRecord, RankRecord, RunEvidence
from distdbg.evidence.stacks.stack_texts import RankAnswer, has_rank_answers, read_rank_answers, stack_reader
from distdbg.evidence.stacks.threads import Frame, Thread, judged_thread, read_threads
from distdbg.model import Unknown
from distdbg.protocol.dump import ProcessState
from distdbg.wording import name_ranks

_HEAD = 16 << 10
#: py-spy's text names a thread within so many lines.
_HEAD_LINES = 200
_MOST_STACKS = 32 << 20
_MOST_TEXT_STACKS = 128 << 20
_NO_KERNEL_LOG = "no kernel log was given"
_MOST_NAMED = 20
#: Of a collective that timed out: one rank's lines do not say who was missing.
_LEAST_COMPARED = 2


#: called with what is being read, and which share of all (0 to 1) is done, None where that is not known
Progress = Callable[[str, float | None], None]


def not_shown(text: str, share: float | None) -> None:
    """For who shows no progress."""


@dataclass
class _RankEvidence:
    """What was found of one rank."""

    recorder: RecorderLog | None = None
    recorder_path: str = ""
    #: (path, threads)
    stacks: list[tuple[str, tuple[Thread, ...]]] = field(default_factory=list)


class ForeignFiles:
    """Reads files one by one, in any order; `evidence` is the result of all of them."""

    def __init__(
        self, signatures: Signatures | None = None, progress: Progress = not_shown, *, of_several: bool = False
    ) -> None:
        """`of_several`: each log holds lines of several ranks, and its name says none."""
        self.signatures = signatures or Signatures()
        self.unknown: list[Unknown] = []
        self.recognised = 0
        self._ranks: dict[int, _RankEvidence] = {}
        self._logs = LogReader()
        self._job: JobLogs | None = None
        self._progress = progress
        self._of_several = of_several
        #: bytes of all files, 0 where that is not known, and of those that were read
        self._size = self._done = 0
        self._seen_stacks = False
        self._unnamed: list[RankDump] = []
        self._frames: dict[Frame, Frame] = {}
        self._foreign: list[str] = []
        #: of torch's debug server, by the reason: the ranks and the files
        self._unread_answers: dict[str, tuple[set[int], dict[str, None]]] = {}
        self._watchdogs = Watchdogs()
        #: ranks of which nothing else is known
        self._of_watchdogs: set[int] = set()
        self._one_watchdog = False

    def read(self, files: Iterable[tuple[Path, str]]) -> None:
        """Each with the name that citations use."""
        named = sorted(files, key=lambda item: item[1])
        sizes = [size_of(path) for path, _ in named]
        self._size = sum(sizes) if STDIN not in dict(named) else 0
        with RecorderReader(self.signatures) as recorders:
            for (path, name), size in zip(named, sizes, strict=True):
                self._one(path, name, recorders)
                self._done += size
        self._progress("", None)
        self._read_job()
        self._add_watchdogs()
        for because, (ranks, (first, *more)) in self._unread_answers.items():
            file_names = f"{first} and {len(more):,} more files" if more else first
            self._note(f"the answers of {name_ranks(ranks)} in {file_names}", because)
        for name in self._foreign[:_MOST_NAMED]:
            self._note(name, "it is of no kind that distdbg knows")
        if len(self._foreign) > _MOST_NAMED:
            self._note(f"{len(self._foreign) - _MOST_NAMED:,} more files", "they are of no kind that distdbg knows")

    @property
    def useful(self) -> bool:
        """Whether anything was read: of any text it can be said what it holds."""
        return bool(self._ranks or self._seen_stacks or not self._logs.empty)

    @property
    def of_a_driver(self) -> bool:
        """Whether the process that wrote a log trains in others, and is no rank itself."""
        return self._logs.lists_workers

    def _note(self, what: str, because: str) -> None:
        self.unknown.append(Unknown(what, because))

    def _lost(self, what: str, because: str) -> None:
        """Evidence that is there and cannot be used."""
        self.unknown.append(Unknown(what, because, decisive=True))

    def _one(self, path: Path, name: str, recorders: RecorderReader) -> None:
        if path == STDIN:
            self._log(path, "standard input")
            return
        head, why = read_bytes(path, _HEAD)
        if head is None:
            self._lost(name, why or "it is missing")
            return
        kind = kind_of(head)
        if kind == "recorder":
            self._recorder(path, name, recorders)
        elif kind == "stacks":
            self._stacks(path, name)
        elif kind == "text":
            self._text(path, name)
        elif kind == "log":
            self._log(path, name)
        elif kind == "empty":
            self._note(name, "it is empty")
        elif kind:
            self._note(name, kind)
        else:
            self._foreign.append(name)

    # -- recorders ------------------------------------------------------------------------------------------

    def _recorder(self, path: Path, name: str, recorders: RecorderReader) -> None:
        self.recognised += 1
        try:
            log = recorders.read(path)
        except RecorderUnreadable as error:
            self._lost(name, str(error))
            return
        rank = rank_of_name(name)
        if rank is None:
            self._lost(name, "its name does not end in a rank: call it …_<rank>")
            return
        self._add_recorder(rank, name, log)

    def _add_recorder(self, rank: int, name: str, log: RecorderLog) -> None:
        if why := log.why_not_of(rank):
            self._lost(name, why)
            return
        for what, because in log.losses():
            self._lost(f"of the recorder of rank {rank} ({name}) {what}", because)
        had = self._ranks.setdefault(rank, _RankEvidence())
        if had.recorder is None:
            had.recorder, had.recorder_path = log, name
            return
        older = name
        if log.newest_ns > had.recorder.newest_ns:  # of equals the first by name
            older, had.recorder, had.recorder_path = had.recorder_path, log, name
        self._note(f"what {older} adds", f"it is of rank {rank}, as {had.recorder_path} is, which is not older")

    # -- stacks ---------------------------------------------------------------------------------------------

    def _stacks(self, path: Path, name: str) -> None:
        text, why = read_whole(path, _MOST_STACKS)
        try:
            value = jsonl.parse(text or "")
        except ValueError as error:
            self.recognised += 1
            out = str(error) if isinstance(error, jsonl.OutOfBounds) else ""
            self._lost(name, out or why or "it is not JSON (cut short?)")
            return
        threads = read_threads(value, self._frames)
        if threads:
            self._add_stacks(name, threads)
            if isinstance(value, list) and (lost := len(value) - len(threads)):
                self._lost(
                    f"{lost:,} of {len(value):,} threads of {name}", "they are not of the form that py-spy writes"
                )
        else:
            self._foreign.append(name)

    def _add_stacks(self, name: str, threads: tuple[Thread, ...]) -> None:
        self.recognised += 1
        rank = rank_of_name(name, not_these={t.pid for t in threads} | {t.os_id for t in threads})
        if rank is None:
            self._stacks_without_rank(name, threads)
            return
        self._ranks.setdefault(rank, _RankEvidence()).stacks.append((name, threads))

    def _stacks_without_rank(self, name: str, threads: Sequence[Thread]) -> None:
        self._seen_stacks = True
        because = "the rank of these stacks is not known: its name does not end in a rank"
        for pid in list(dict.fromkeys(thread.pid for thread in threads))[:_MOST_NAMED]:
            own = tuple(thread for thread in threads if thread.pid == pid)
            look = Look(0.0, ProcessState(state=NOT_LOOKED_AT), threads=own, threads_path=name)
            self._unnamed.append(RankDump(UNKNOWN_RANK, pid, 0, "", (look,)))
            main = judged_thread(own, pid) or own[0]
            at = next(iter(main.user_frames), None) or next(iter(main.frames), None)
            place = f"is at {at}"
            if not main.user_frames and (wait := outermost_wait((f.function, f.library) for f in main.frames)):
                place = f"waits for {wait[0].value} in {wait[1]}"
            process = f"process {pid}" if pid else "the process"
            self._lost(f"the rank of {process} in {name}, which {place}", because)

    # -- text -----------------------------------------------------------------------------------------------

    def _text(self, path: Path, name: str) -> None:
        lines = LineReader(path, _MOST_TEXT_STACKS)
        head = "\n".join(islice(lines, _HEAD_LINES))
        if has_rank_answers(head):
            self.recognised += 1
            for answer in read_rank_answers(lines):
                self._rank_answer(name, answer)
        elif (reader := stack_reader(head)) is not None:
            self._add_stacks(name, read_threads(iter(reader(lines)), self._frames))
        else:
            self._log(path, name)
            return
        for what, because in lines.losses():
            self._lost(f"of {name} {what}", because)

    def _rank_answer(self, name: str, answer: RankAnswer) -> None:
        """One rank's part of what torch's debug server wrote or answered."""
        text, log = "\n".join(answer.lines), None
        if not answer.failure and (reader := stack_reader(text)) is not None:
            threads = read_threads(iter(reader(answer.lines)), self._frames)
            self._ranks.setdefault(answer.rank, _RankEvidence()).stacks.append((name, threads))
            return
        with contextlib.suppress(ValueError):
            log = None if answer.failure else read_recorder(jsonl.parse(text), self.signatures)
        if log is not None:
            self._add_recorder(answer.rank, name, log)
        else:
            because = answer.failure or "they are of no known form"
            ranks, names = self._unread_answers.setdefault(because, (set(), {}))
            ranks.add(answer.rank)
            names[name] = None

    def _log(self, path: Path, name: str) -> None:
        """Any text that is nothing else: read once, in blocks."""
        kept, read = Candidates(), LogText(path)
        for block in read:
            kept.feed(block)
            share = min(1.0, (self._done + read.bytes_read) / self._size) if self._size else None
            self._progress(f"reading {name}: {kept.lines:,} lines", share)
        if read.why_cut:
            self._lost(f"the rest of {name}" if kept.lines else name, read.why_cut)
        elif not kept.lines:
            self._note(name, "it is empty")
        if not kept.lines:
            return
        self.recognised += 1
        self._logs.add(name, kept, NameFacts() if self._of_several else facts_of_name(name), read.form)

    def _read_job(self) -> None:
        if self._logs.empty:
            return
        job = self._job = self._logs.job()
        self.unknown += job.unknown
        for owner, path, lines in job.watchdogs:
            self._watchdogs.read(lines, owner, path)

    def _add_watchdogs(self) -> None:
        """Use the lines of logs where no recorders were given."""
        alone = all(had.recorder is None for had in self._ranks.values())
        found = self._watchdogs.recorders(self.signatures, operations=alone)
        if len(self._ranks.keys() | found.keys()) < _LEAST_COMPARED:
            self._one_watchdog = bool(found) or (self._job is not None and self._job.timed_out)
            return
        for rank, log in found.items():
            had = self._ranks.setdefault(rank, _RankEvidence())
            if had.recorder is None:
                had.recorder, had.recorder_path = log, self._watchdogs.paths[rank]
                self._of_watchdogs.add(rank)

    def _shows_silent_ranks(self, size: int) -> bool:
        """Whether ranks that wrote no line are suspects: not where a rank is known to be behind, nor where most wrote
        nothing, so that others' logs were not given."""
        if not self._ranks.keys() <= self._of_watchdogs:
            return True
        newest: dict[str, set[int]] = {}
        for had in self._ranks.values():
            for (name, _), group in had.recorder.groups.items() if had.recorder else ():
                newest.setdefault(name, set()).add(group.last)
        return 2 * len(self._ranks) > size and all(len(numbers) == 1 for numbers in newest.values())

    # -- together -------------------------------------------------------------------------------------------

    def evidence(self, base: RunEvidence | None = None) -> RunEvidence:
        """`base` is the evidence of a run or a dump of ours; nothing in it is replaced."""
        dump = self._dump(base.dump if base else None)
        found = replace(base or evidence_of(dump, {}, []), unnamed_processes=tuple(self._unnamed))
        if (base and dump.ranks and base.dump is None) or (base and base.dump is not None):
            found = replace(found, dump=dump)
        if self._job is None:
            return replace(found, unknown=(*found.unknown, *self.unknown))
        job = self._job
        ranks = {rank.rank: rank for rank in found.ranks}
        nodes = list(found.nodes)
        if base is None:
            hosts = dict.fromkeys([*(node.host for node in nodes if node.host), *job.hosts]) or [""]
            nodes = [NodeRecord(n, host, kernel_unknown_because=_NO_KERNEL_LOG) for n, host in enumerate(hosts)]
        places = {node.host: node.node_rank for node in nodes}
        for rank, process in job.ranks.items():
            node, had = places.get(process.host, 0), ranks.get(rank)
            ranks[rank] = process.record(node) if had is None else self._with_log(had, process)
        return replace(
            found,
            ranks=tuple(r for _, r in sorted(ranks.items())),
            nodes=tuple(nodes),
            unattributed=tuple(process.record(places.get(process.host, 0)) for process in job.unattributed),
            logs=replace(job.read, one_watchdog=self._one_watchdog),
            unknown=(*found.unknown, *self.unknown),
        )

    def _with_log(self, record: RankRecord, process: LoggedProcess) -> RankRecord:
        has_end = record.exit_code is not None or bool(record.stderr_tail)
        if record.nccl is not None if process.only_nccl else has_end:
            path = process.stderr_path or process.nccl_path or "a log"
            self._note(f"what {path} says about rank {record.rank}", "another source says it too")
            return record
        return process.added_to(record)

    def _dump(self, base: Dump | None) -> Dump:
        found = {rank: self._rank(rank, had, base) for rank, had in sorted(self._ranks.items())}
        recorders = [had.recorder for had in self._ranks.values() if had.recorder is not None]
        everybody = {rank for recorder in recorders for rank in recorder.largest_group}
        known = (base.ranks.keys() | base.missing.keys() if base else set()) | found.keys()
        missing = dict.fromkeys(everybody - known, "no file of it was given")
        if base is not None:
            ranks = dict(sorted({**base.ranks, **found}.items()))
            left = {rank: why for rank, why in base.missing.items() if rank not in ranks}
            return replace(base, ranks=ranks, missing=left | missing, signatures=self.signatures)
        size = max(known | everybody, default=-1) + 1
        silent = [rank for rank in range(size) if rank not in known]
        if self._shows_silent_ranks(size):
            missing |= dict.fromkeys(silent, "no file of it was given")
        elif silent:
            missing, size = {}, 0
            self._note(
                f"what {name_ranks(silent)} did",
                "no line of a watchdog of theirs was read",
            )
        t = max((look.t for rank in found.values() for look in rank.looks), default=0.0)
        return Dump(
            "", t, "asked", world_size=size or None, ranks=found, missing=dict(sorted(missing.items())),
            has_all_ranks=any(recorder.world for recorder in recorders), signatures=self.signatures,
        )  # fmt: skip

    def _rank(self, number: int, had: _RankEvidence, base: Dump | None) -> RankDump:
        before = base.ranks.get(number) if base else None
        if before is not None:
            return self._beside(before, had)
        pid = next((threads[0].pid for _, threads in had.stacks if threads), 0)
        t = had.recorder.newest_ns / 1e9 if had.recorder else 0.0
        process = ProcessState(state=NOT_LOOKED_AT)
        looks = [Look(t, process, threads=threads, threads_path=path) for path, threads in had.stacks]
        looks = looks or [Look(t, process, missing={"stacks": "no file with its stack was given"})]
        looks[-1] = replace(looks[-1], recorder=had.recorder, recorder_path=had.recorder_path)
        return RankDump(number, pid, 0, "", tuple(looks))

    def _beside(self, before: RankDump, had: _RankEvidence) -> RankDump:
        """Ours knows more of the same moment; a foreign file fills what it lacks."""
        paths = [path for path, _ in had.stacks] + ([had.recorder_path] if had.recorder else [])
        last = before.last
        if had.recorder is not None and before.recorder is None:
            last = replace(last, recorder=had.recorder, recorder_path=had.recorder_path)
            paths.remove(had.recorder_path)
        for path in paths:
            self._note(f"what {path} adds", f"distdbg's own dump has rank {before.rank} already")
        return replace(before, looks=(*before.looks[:-1], last))
