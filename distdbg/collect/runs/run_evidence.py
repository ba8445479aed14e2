"""Read a run directory as RunEvidence. A file that is missing, truncated, foreign or hostile becomes an Unknown.

About 0.3 s for 1,024 ranks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import is_binary, read_end, read_spread, read_whole
from distdbg.collect.files.foreign_files import ForeignFiles
from distdbg.collect.files.recorder_files import add_watchdog_recorders
from distdbg.collect.runs.dump_files import load_dump
from distdbg.collect.runs.known_secrets import known_secrets
from distdbg.collect.runs.launcher_process import find_launcher
from distdbg.evidence import jsonl
from distdbg.evidence.dump import Dump
from distdbg.evidence.host.gpus import courses, gpu_courses
from distdbg.evidence.host.node_clocks import clock_offsets, shift_lines, shift_rank_dump, shift_record
from distdbg.evidence.launcher import (
    Events,
    Launcher,
    events_of_attempt,
    events_of_last_start,
    find_cancel,
    marks_attempts,
)
from distdbg.evidence.logs.tail import Tail
from distdbg.evidence.memory.growth import node_memory
from distdbg.evidence.own_failures import missing_profiles, own_failures
from distdbg.evidence.records import (
    RankTexts,
    beyond_bounds,
    first_failures,
    node_record,
    rank_record,
    ranks_seen,
    unknown_exits,
)
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.hidden_values import HiddenValues
from distdbg.model import MOST_RANKS, Unknown
from distdbg.protocol import chosen_ranks
from distdbg.protocol.dump import BUSY_START
from distdbg.protocol.launcher_events import Launched, NotStarted, Stalled
from distdbg.rundir import Attempt, NodeFiles, RankFiles, RunDir
from distdbg.wording import counted

_TAIL = 64 << 10
#: What is kept of a rank's streams when there are so many ranks that 64 KiB each would fill the memory.
_SHORT_TAIL = 4 << 10
_FULL_TAILS = 64
_MOST_EVENTS = 16 << 20
_MOST_FACTS = 4 << 20
_MOST_JSON = 4 << 20
_MOST_NCCL = 1 << 20
#: Of all memory.jsonl, and of all metrics.jsonl, together: their ends say how it goes.
_MOST_LINES = 64 << 20
_MOST_LINES_EACH = 4 << 20
#: So many of its lines, from all over the run, are a picture of it; of all files together; of one that is too long.
_FEWEST_LOOKS, _ALL_LOOKS, _LOOKS_OF_LONG = 60, 1 << 16, 240
#: A node has one.
_MOST_LAUNCHERS = 256
_NO_OBJECT = "not a JSON object (cut short?)"


def load_evidence(run: RunDir, attempt: int | None = None, *, whole_groups: bool = False) -> RunEvidence:
    """What is known about `run`: its newest attempt, or the one numbered `attempt`. Never raises for bad content.

    Of a rehearsal that ran chosen ranks only, groups have these alone: a collective waits for no other. With
    `whole_groups` they have all members.
    """
    reader = _RunReader(run)
    attempts = run.attempts()
    chosen = next((a for a in reversed(attempts) if attempt in (None, a.number)), None)
    job = reader.json_file(run.job) or {}
    timeline = reader.timeline(run.events)
    hidden = HiddenValues(job, known_secrets())
    if not job:
        reader.note("what was launched", "job.json is missing or cannot be read")
    if hidden.incomplete:
        reader.note("whether this report shows a secret of the job", hidden.incomplete)
    if chosen is None:
        wanted = f"attempt {attempt}" if attempt else "any attempt"
        reader.note("the ranks", f"no agent left a record of {wanted}")
        events = events_of_last_start(timeline)
        return RunEvidence(
            job, attempt or 0, (), (), events, find_cancel(events, ()),
            (*reader.unknown, *own_failures((), (), events)),
            run_id=run.id, run_path=str(run.path), launcher=find_launcher(job), hidden=hidden,
        )  # fmt: skip
    reader.note_if_missing(run.events)
    ran = chosen_ranks.of_job(job) if not whole_groups else None
    evidence = _load_attempt(reader, chosen, attempts, job=job, timeline=timeline, ran=ran)
    evidence = replace(evidence, hidden=hidden)
    earlier = [a for a in attempts if a.number < chosen.number]
    loaded = (_load_attempt(_RunReader(run), a, attempts, job=job, timeline=timeline, ran=ran) for a in earlier)
    return replace(evidence, earlier_attempts=tuple(loaded)) if earlier else evidence


def _load_attempt(
    reader: _RunReader,
    chosen: Attempt,
    attempts: Sequence[Attempt],
    *,
    job: Mapping[str, Any],
    timeline: Events,
    ran: chosen_ranks.ChosenRanks | None,
) -> RunEvidence:
    earlier = [a for a in attempts if a.number < chosen.number]
    events = reader.events_of(chosen, attempts, timeline)
    clocks = clock_offsets(events)
    reader.ahead_s = {clock.node_rank: clock.ahead_s for clock in clocks}
    nodes, ranks = reader.attempt(chosen, earlier)
    if ran is not None:
        ranks = [_with_groups_of(set(ran.ranks), rank) for rank in ranks]
    dump = reader.with_watchdog_recorders(chosen, reader.newest_dump(chosen), ranks)
    later = timeline[timeline.index(events[-1]) + 1 :] if events else ()
    relaunched = Launched.is_in(later[:1])
    if relaunched and chosen is attempts[-1]:
        not_started = NotStarted.newest(later)
        because = not_started.because if not_started is not None else "no agent left a record of them"
        reader.note("the ranks of the launch that followed", because)
    evidence = RunEvidence(
        job=job,
        attempt=chosen.number,
        ranks=tuple(ranks),
        nodes=tuple(nodes),
        events=events,
        cancelled_by=find_cancel(events, nodes),
        run_id=reader.run.id,
        run_path=str(reader.run.path),
        dump=dump,
        launcher=Launcher(None, "", alive=False) if relaunched else find_launcher(job),
        is_superseded=chosen is not attempts[-1] and not relaunched,
        clocks=clocks,
    )
    if evidence.is_over is not False or not Stalled.is_in(events):  # who looks at a hang knows that it lives
        # A dump shows ranks that live: that they have not ended is what it is about.
        due = ranks if dump is None or evidence.is_over else [rank for rank in ranks if rank.ended is not None]
        reader.unknown += unknown_exits(due, is_over=evidence.is_over)
    reader.unknown += own_failures(ranks, nodes, events)
    reader.unknown += missing_profiles(job, nodes, ranks, lambda rank: {p.name for p in chosen.rank(rank).profiles()})
    return reader.with_ranks_of_launchers(chosen, replace(evidence, unknown=tuple(reader.unknown)))


def _with_groups_of(chosen: set[int], rank: RankRecord) -> RankRecord:
    return replace(rank, groups={name: tuple(filter(chosen.__contains__, all_)) for name, all_ in rank.groups.items()})


class _RunReader:
    """Reads one run and notes what could not be read."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.unknown: list[Unknown] = []
        self._lines_each, self._looks = _MOST_LINES_EACH, _ALL_LOOKS
        #: by node, how many seconds its clock is ahead of the launcher's
        self.ahead_s: Mapping[int, float] = {}

    def note(self, what: str, because: str) -> None:
        self.unknown.append(Unknown(what, because))

    def events_of(self, attempt: Attempt, attempts: Sequence[Attempt], timeline: Events) -> Events:
        """The launcher's events of the attempt; of an older version those of the last start, for the newest attempt."""
        if marks_attempts(timeline):
            return events_of_attempt(timeline, attempt.number)
        if attempt is attempts[-1]:
            return events_of_last_start(timeline)
        self.note(
            f"the launcher's events of attempt {attempt.number}",
            "the version of distdbg that launched the run did not record where an attempt begins",
        )
        return ()

    def attempt(self, attempt: Attempt, earlier: list[Attempt]) -> tuple[list[NodeRecord], list[RankRecord]]:
        many = max(len(attempt.nodes()), len(attempt.ranks()), 1)
        self._lines_each = min(_MOST_LINES_EACH, _MOST_LINES // many)
        self._looks = max(_FEWEST_LOOKS, _ALL_LOOKS // many)
        nodes = [self._node(files, earlier) for files in attempt.nodes() if files.folder.is_dir()]
        seen: dict[int, tuple[NodeRecord | None, Mapping[str, Any]]] = {}
        for node in nodes:
            for rank, fields in ranks_seen(node.events).items():
                seen[rank] = (node, fields)
        folders = {r: f for r, f in attempt.ranks().items() if f.folder.is_dir()}
        for rank in [rank for rank in folders if rank >= MOST_RANKS]:
            self.note(self.run.relative(folders.pop(rank).folder), f"no job has more than {MOST_RANKS:,} ranks")
        full = first_failures({rank: fields for rank, (_, fields) in seen.items()}, _FULL_TAILS)
        ranks = []
        for rank in sorted(seen.keys() | folders.keys()):
            node_of_rank, known = seen.get(rank) or (None, {})
            ahead_s = self.ahead_s.get(node_of_rank.node_rank, 0.0) if node_of_rank else 0.0
            texts = self._rank(folders.get(rank) or attempt.rank(rank), full_tail=rank in full, ahead_s=ahead_s)
            self.unknown += beyond_bounds(rank, texts.facts)
            ranks.append(rank_record(rank, node_of_rank, known, texts))
        return nodes, ranks

    def newest_dump(self, attempt: Attempt) -> Dump | None:
        """The newest dump with a manifest, but of a busy start: the others are still being written, or were never
        finished."""
        for folder in reversed(attempt.dumps()):
            if (folder / "manifest.json").is_file():
                dump, unknown = load_dump(folder, self.run.relative(folder))
                if dump.ranks and dump.reason != BUSY_START:
                    self.unknown += unknown
                    ranks = {n: shift_rank_dump(r, self.ahead_s.get(r.node_rank, 0.0)) for n, r in dump.ranks.items()}
                    return replace(dump, ranks=ranks) if self.ahead_s else dump
        return None

    def with_watchdog_recorders(self, attempt: Attempt, dump: Dump | None, ranks: list[RankRecord]) -> Dump | None:
        kept = {rank: files.recorder for rank, files in attempt.ranks().items() if files.recorder.is_file()}
        named = {rank: (path, self.run.relative(path)) for rank, path in kept.items()}
        dump, unknown = add_watchdog_recorders(dump, ranks, named)
        self.unknown += unknown
        return dump

    def with_ranks_of_launchers(self, attempt: Attempt, evidence: RunEvidence) -> RunEvidence:
        """Where the processes that failed have launched others (accelerate, DeepSpeed, Ray), the ranks are those that
        their streams show; a launcher is none."""
        failed = [r.rank for r in evidence.ranks if r.exit_code and not r.has_worker]
        if not failed or len(failed) > _MOST_LAUNCHERS:
            return evidence
        streams = [attempt.rank(rank).stream(stream) for rank in failed for stream in ("stdout", "stderr")]
        files = ForeignFiles(of_several=True)
        files.read((path, self.run.relative(path)) for path in streams if path.is_file())
        shown = files.evidence()
        launched = {rank.rank for rank in evidence.ranks}
        if launched.issuperset(rank.rank for rank in shown.ranks) and not files.of_a_driver:
            return evidence
        return replace(evidence, ranks=shown.ranks, unattributed=shown.unattributed)

    def _node(self, files: NodeFiles, earlier: list[Attempt]) -> NodeRecord:
        ahead_s = self.ahead_s.get(files.node_rank, 0.0)
        events = shift_lines(self.timeline(files.events), ahead_s)
        self.note_if_missing(files.events)
        before: list[tuple[int, dict[str, Any]]] = []
        for attempt in earlier:
            for other in attempt.nodes():
                if other.folder.name == files.folder.name:
                    before += self.timeline(other.events)
        metrics = shift_lines(self._ends(files.metrics), ahead_s)
        spread = shift_lines(self._spread(files.metrics), ahead_s)
        return node_record(
            files.node_rank,
            files.host,
            events=events,
            events_path=self.run.relative(files.events),
            torchrun=self._tail(files.torchrun_log, _TAIL),
            torchrun_path=self.run.relative(files.torchrun_log),
            agent_log=self._tail(files.agent_log, _TAIL).text if files.agent_log.exists() else "",
            before=before,
            memory=node_memory(metrics, self.run.relative(files.metrics)),
            gpus=gpu_courses(metrics),
            metrics_path=self.run.relative(files.metrics),
            courses=courses(spread or metrics[:: -(-len(metrics) // self._looks) or 1]),
        )

    def _rank(self, files: RankFiles, *, full_tail: bool, ahead_s: float) -> RankTexts:
        exit_record = self.json_file(files.exit)
        failed = bool(exit_record) and exit_record.get("exit_code") != 0  # type: ignore[union-attr]
        size = _TAIL if full_tail else _SHORT_TAIL
        return RankTexts(
            folder=self.run.relative(files.folder),
            exit=shift_record(exit_record, ahead_s) if exit_record else exit_record,
            facts=shift_lines(self.json_lines(files.facts, _MOST_FACTS), ahead_s),
            error=self.json_file(files.error) if failed or exit_record is None else None,
            stdout=self._tail(files.stdout, size if failed else min(size, 16 << 10)),
            stderr=self._tail(files.stderr, size),
            memory=shift_lines(self._ends(files.memory_lines), ahead_s),
            memory_course=shift_lines(self._spread(files.memory_lines), ahead_s),
            gradients=self._begin_and_end(files.gradients),
            nccl=self._tail(files.nccl, 16 << 10).text if failed else "",
            nccl_head=read_whole(files.nccl, _MOST_NCCL)[0] or "",
        )

    def _tail(self, path: Path, most: int) -> Tail:
        """The end of a log. One that exists and cannot be read, or is not text, is noted."""
        tail = read_end(path, most)
        if tail.unread or is_binary(tail.text):
            self.note(self.run.relative(path), tail.unread or "most of it is not text")
        return tail

    def _ends(self, path: Path) -> tuple[tuple[int, dict[str, Any]], ...]:
        """The last lines of what grows with the job: the first of them may be cut, and is left out then."""
        tail = read_end(path, self._lines_each)
        if tail.unread:
            self.note(self.run.relative(path), tail.unread)
        return self._objects(path, tail.text)

    def _spread(self, path: Path) -> tuple[tuple[int, dict[str, Any]], ...]:
        """Lines from all over a file whose end is all that `_ends` gives; none of a shorter one."""
        text = read_spread(path, self._lines_each, min(_LOOKS_OF_LONG, self._looks))
        return self._objects(path, text) if text else ()

    def _begin_and_end(self, path: Path) -> tuple[tuple[int, dict[str, Any]], ...]:
        """The first and the last lines of a file that is too large, each with its line number."""
        text, cut = read_whole(path, self._lines_each)
        if text is None and cut:
            self.note(self.run.relative(path), cut)
        if not (cut and text):
            return self._objects(path, text or "")
        half = read_end(path, self._lines_each // 2)
        ended = ((half.first_line + n - 1, line) for n, line in self._objects(path, half.text))
        return (*self._objects(path, text[: len(text) // 2].rpartition("\n")[0]), *ended)

    def _objects(self, path: Path, text: str) -> tuple[tuple[int, dict[str, Any]], ...]:
        """The objects in a part of a file; their line numbers are not known."""
        found, bad = jsonl.objects(text)
        if bad:
            lines = "1 line" if len(bad) == 1 else f"{len(bad)} lines"
            self.note(f"{lines} of {self.run.relative(path)}", _NO_OBJECT)
        return tuple(found)

    def note_if_missing(self, path: Path) -> None:
        """For a file that is written before all others of its folder."""
        if not os.path.lexists(path):
            self.note(self.run.relative(path), "it is missing")

    def json_file(self, path: Path) -> dict[str, Any] | None:
        text, why = read_whole(path, _MOST_JSON)
        if text is None:
            if why:
                self.note(self.run.relative(path), why)
            return None
        value = jsonl.whole(text)
        if value is None and text:
            self.note(self.run.relative(path), why or _NO_OBJECT)
        return value

    def timeline(self, path: Path) -> tuple[tuple[int, dict[str, Any]], ...]:
        found = self.json_lines(path, _MOST_EVENTS)
        events = tuple((line, event) for line, event in found if isinstance(event.get("event"), str))
        if bad := len(found) - len(events):
            self.note(f"{counted(bad, 'line')} of {self.run.relative(path)}", "no event is named there")
        return events

    def json_lines(self, path: Path, most: int) -> tuple[tuple[int, dict[str, Any]], ...]:
        text, why = read_whole(path, most)
        if why:
            self.note(self.run.relative(path), why)
        found, bad = jsonl.objects(text or "")
        if bad:
            lines = f"line {bad[0]}" if len(bad) == 1 else f"{len(bad)} lines, the first {bad[0]}"
            self.note(f"{self.run.relative(path)}, {lines}", _NO_OBJECT)
        return tuple(found)
