"""Read files that others collected: recorder dumps, stacks of py-spy, logs, in any mixture and order.

The content says what a file is, never its suffix; its name says the rank. A file that cannot be used becomes an
Unknown, and the others are still read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import LineReader, read_bytes, read_end, read_whole
from distdbg.collect.files.recorder_files import RecorderReader, RecorderUnreadable
from distdbg.collect.runs.dump_evidence import evidence_of
from distdbg.evidence import jsonl
from distdbg.evidence.dump import NOT_LOOKED_AT, Dump, Look, RankDump
from distdbg.evidence.logs.rank_names import rank_of_name, rank_that_is_said
from distdbg.evidence.logs.ranks import is_log, read_log
from distdbg.evidence.logs.watchdog import read_watchdogs
from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.evidence.stacks.pyspy_text import is_pyspy_text, read_pyspy_text
from distdbg.evidence.stacks.threads import Frame, Thread, read_threads
from distdbg.model import Unknown, fold_ranks
from distdbg.protocol.dump import ProcessState

_HEAD = 16 << 10
#: py-spy's text names a thread within so many lines.
_HEAD_LINES = 200
_MOST_STACKS = 32 << 20
_MOST_TEXT_STACKS = 128 << 20
_MOST_LOG = 8 << 20
_MOST_NAMED = 20
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}


@dataclass
class _Rank:
    """What was found of one rank."""

    recorder: RecorderLog | None = None
    recorder_path: str = ""
    #: (path, threads)
    stacks: list[tuple[str, tuple[Thread, ...]]] = field(default_factory=list)


class ForeignFiles:
    """Reads files one by one; `evidence` is what they tell together, whatever their order was."""

    def __init__(self, signatures: Signatures | None = None) -> None:
        self.signatures = signatures or Signatures()
        self.unknown: list[Unknown] = []
        self.recognised = 0
        self._ranks: dict[int, _Rank] = {}
        self._logs: dict[str, tuple[str, dict[int, dict[str, Any]]]] = {}
        self._frames: dict[Frame, Frame] = {}
        self._foreign: list[str] = []

    def read(self, files: Iterable[tuple[Path, str]]) -> None:
        """Each with the name that citations use."""
        with RecorderReader(self.signatures) as recorders:
            for path, name in sorted(files, key=lambda item: item[1]):
                self._one(path, name, recorders)
        for name in self._foreign[:_MOST_NAMED]:
            self._note(name, "it is of no kind that distdbg knows")
        if len(self._foreign) > _MOST_NAMED:
            self._note(f"{len(self._foreign) - _MOST_NAMED:,} more files", "they are of no kind that distdbg knows")

    @property
    def useful(self) -> bool:
        return bool(self._ranks or any(told for _, told in self._logs.values()))

    def _note(self, what: str, because: str) -> None:
        self.unknown.append(Unknown(what, because))

    def _lost(self, what: str, because: str) -> None:
        """Evidence that is there and cannot be used."""
        self.unknown.append(Unknown(what, because, decisive=True))

    def _one(self, path: Path, name: str, recorders: RecorderReader) -> None:
        head, why = read_bytes(path, _HEAD)
        if head is None:
            self._lost(name, why or "it is missing")
            return
        kind = _kind(head)
        if kind == "recorder":
            self._recorder(path, name, recorders)
        elif kind == "stacks":
            self._stacks(path, name)
        elif kind == "text":
            self._text(path, name)
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
        if why := _of_another_job(rank, log):
            self._lost(name, why)
            return
        for what, because in log.losses():
            self._lost(f"of the recorder of rank {rank} ({name}) {what}", because)
        had = self._ranks.setdefault(rank, _Rank())
        if had.recorder is None:
            had.recorder, had.recorder_path = log, name
            return
        older = name
        if _age(log) > _age(had.recorder):  # of equals the first by name
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
            self._lost(name, "the rank of these stacks is not known: its name does not end in a rank")
            return
        self._ranks.setdefault(rank, _Rank()).stacks.append((name, threads))

    # -- text -----------------------------------------------------------------------------------------------

    def _text(self, path: Path, name: str) -> None:
        lines = LineReader(path, _MOST_TEXT_STACKS)
        if is_pyspy_text(head := "\n".join(islice(lines, _HEAD_LINES))):
            self._add_stacks(name, read_threads(read_pyspy_text(lines), self._frames))
            for what, because in lines.losses():
                self._lost(f"of {name} {what}", because)
            return
        tail = read_end(path, _MOST_LOG)
        if is_log(tail.text) or is_log(head):
            if tail.before:
                self._note(
                    f"the first {tail.before >> 20} MiB of {name}", f"of a log the last {_MOST_LOG >> 20} MiB are read"
                )
            self.recognised += 1
            rank = rank_that_is_said(name)
            found = read_log(tail, name, rank)
            self.unknown += found.unknown
            for number, log in read_watchdogs(tail.text.split("\n"), rank).recorders(self.signatures).items():
                had = self._ranks.setdefault(number, _Rank())
                if had.recorder is None:
                    had.recorder, had.recorder_path = log, name
            self._logs[name] = (tail.text[-(64 << 10) :], {rank: dict(f) for rank, f in found.ranks.items()})
        else:
            self._foreign.append(name)

    # -- together -------------------------------------------------------------------------------------------

    def evidence(self, base: RunEvidence | None = None) -> RunEvidence:
        """`base` is what a run or a dump of ours tells already; of it, nothing is replaced."""
        dump = self._dump(base.dump if base else None)
        found = base or evidence_of(dump, {}, [])
        if (base and dump.ranks and base.dump is None) or (base and base.dump is not None):
            found = replace(base, dump=dump)
        ranks = {rank.rank: rank for rank in found.ranks}
        nodes = list(found.nodes)
        for number, (name, (text, told)) in enumerate(sorted(self._logs.items())):
            node = len(nodes) if base is None and not dump.ranks else number
            for rank, fields in told.items():
                ranks[rank] = self._with_log(ranks.get(rank), rank, node, fields)
            if base is None and not dump.ranks:
                host = next((str(f["host"]) for f in told.values() if "host" in f), "")
                nodes.append(NodeRecord(node, host, torchrun_tail=text, torchrun_path=name))
        unknown = (*found.unknown, *self.unknown)
        return replace(found, ranks=tuple(r for _, r in sorted(ranks.items())), nodes=tuple(nodes), unknown=unknown)

    def _with_log(self, record: RankRecord | None, rank: int, node: int, fields: dict[str, Any]) -> RankRecord:
        if record is None:
            return replace(RankRecord(rank, 0, node, ""), **fields)
        if "stderr_path" not in fields and "nccl" in fields:  # the file of NCCL alone
            had, fields = record.nccl is not None, {k: v for k, v in fields.items() if k.startswith(("nccl", "host"))}
        else:
            had = record.exit_code is not None or bool(record.stderr_tail)
        if had:
            path = fields.get("stderr_path") or fields.get("nccl_path", "a log")
            self._note(f"what {path} tells of rank {rank}", "another source tells it too")
            return record
        kept = {"host" if record.host else "", *(("nccl", "nccl_tail", "nccl_path") if record.nccl else ())}
        return replace(record, **{k: v for k, v in fields.items() if k not in kept})

    def _dump(self, base: Dump | None) -> Dump:
        found = {rank: self._rank(rank, had, base) for rank, had in sorted(self._ranks.items())}
        everybody = {r for had in self._ranks.values() if had.recorder for r in _everybody(had.recorder)}
        known = (base.ranks.keys() | base.missing.keys() if base else set()) | found.keys()
        missing = dict.fromkeys(everybody - known, "no file of it was given")
        if base is not None:
            ranks = dict(sorted({**base.ranks, **found}.items()))
            left = {rank: why for rank, why in base.missing.items() if rank not in ranks}
            return replace(base, ranks=ranks, missing=left | missing, signatures=self.signatures)
        size = max(known | everybody, default=-1) + 1
        missing |= {rank: "no file of it was given" for rank in range(size) if rank not in known}
        t = max((look.t for rank in found.values() for look in rank.looks), default=0.0)
        return Dump("", t, "asked", None, size or None, found, dict(sorted(missing.items())), {}, self.signatures)

    def _rank(self, number: int, had: _Rank, base: Dump | None) -> RankDump:
        before = base.ranks.get(number) if base else None
        if before is not None:
            return self._beside(before, had)
        pid = next((threads[0].pid for _, threads in had.stacks if threads), 0)
        t = _age(had.recorder) / 1e9 if had.recorder else 0.0
        process = ProcessState(state=NOT_LOOKED_AT)
        looks = [Look(t, process, threads=threads, threads_path=path) for path, threads in had.stacks]
        looks = looks or [Look(t, process, missing={"stacks": "no file with its stack was given"})]
        looks[-1] = replace(looks[-1], recorder=had.recorder, recorder_path=had.recorder_path)
        return RankDump(number, pid, 0, "", tuple(looks))

    def _beside(self, before: RankDump, had: _Rank) -> RankDump:
        """Ours knows more of the same moment; a foreign file fills what it lacks."""
        paths = [path for path, _ in had.stacks] + ([had.recorder_path] if had.recorder else [])
        last = before.last
        if had.recorder is not None and before.recorder is None:
            last = replace(last, recorder=had.recorder, recorder_path=had.recorder_path)
            paths.remove(had.recorder_path)
        for path in paths:
            self._note(f"what {path} adds", f"distdbg's own dump tells of rank {before.rank} already")
        return replace(before, looks=(*before.looks[:-1], last))


def _age(log: RecorderLog) -> int:
    times = [group.created[-1] for group in log.groups.values() if len(group.created)]
    return max([*times, *(t.created for t in log.transfers)], default=0)


def _of_another_job(rank: int, log: RecorderLog) -> str:
    """Why the recorder cannot be that of `rank`; empty if it can."""
    world = next((group.ranks for group in log.groups.values() if group.description == "default_pg"), ())
    if not world or rank in world:
        return ""
    return f"its name says rank {rank}, but the ranks of its default group are {fold_ranks(world)}"


def _everybody(log: RecorderLog) -> tuple[int, ...]:
    return max((group.ranks for group in log.groups.values()), key=len, default=())


def _kind(head: bytes) -> str:
    """recorder, stacks, text or empty; a sentence for what is known to be useless, "" for what is not known."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed or not text:
        return f"it is packed ({packed}): unpack it first" if packed else "empty"
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return "recorder"
    if b"\0" in head:
        return ""
    if text[:1] == b"{":
        keys = (b'"pg_config"', b'"pg_status"', b'"profiling_name"', b'"comm_lib_version"', b'"collective_seq_id"')
        return "recorder" if any(key in head for key in keys) else ""
    if text[:1] == b"[" and b'"frames"' in head[:4096]:
        return "stacks"
    return "text"
