"""Read the logs of a run: raw, as lines by rank, or merged by time. Memory stays bounded.

Times are each node's own clock: lines of different nodes are in order as far as their clocks agree.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from distdbg.errors import NothingToAnalyse
from distdbg.evidence.logs.index import Line, LineSplitter, TimeTable
from distdbg.model import fold_ranks, grouped
from distdbg.rundir import Attempt, RunDir, open_regular

STREAMS = ("stdout", "stderr")
_RAW_BYTES = 1 << 20
#: Read at once, of all streams together and of one.
_ALL_BYTES = 8 << 20
_MOST_BYTES = 256 << 10
_LEAST_BYTES = 4 << 10
_INDEX_SHARE = 16


class Chunk(NamedTuple):
    """Bytes of one stream that arrived at one time (epoch ns, 0 where no index says), at an offset of its log."""

    t_ns: int
    attempt: int
    rank: int
    stream: str
    offset: int
    data: bytes


class LogLine(NamedTuple):
    """`data` is without its newline; `ended` is False where there was none (yet), or where a long line was cut."""

    t_ns: int
    attempt: int
    rank: int
    stream: str
    data: bytes
    ended: bool


@dataclass
class StreamReader:
    """One stream from its beginning, part by part. Nothing stays open between two reads: a run can have 4,096 files."""

    attempt: int
    rank: int
    stream: str
    log: Path
    index: Path
    offset: int = 0
    _index_offset: int = 0
    _times: TimeTable = field(default_factory=TimeTable)
    _inode: int = 0

    def size(self) -> int:
        """Bytes of its log now; 0 where it has none. Starts over if the log was deleted and has begun again."""
        try:
            status = os.stat(self.log)  # noqa: PTH116 - called 20 times a second for each stream
        except OSError:
            return 0
        if self._inode not in (0, status.st_ino):
            self.offset, self._index_offset, self._times = 0, 0, TimeTable()
        self._inode = status.st_ino
        return status.st_size

    def read(self, count: int) -> list[Chunk]:
        """The next bytes, at most `count`; empty where there are none (yet)."""
        self.size()
        data = _read_at(self.log, self.offset, count)
        if not data:
            return []
        end = self.offset + len(data)
        while self._times.reaches < end:
            more = _read_at(self.index, self._index_offset, max(1024, count // _INDEX_SHARE))
            if not more:
                break
            self._index_offset += len(more)
            self._times.add(more)
        chunks = []
        for t_ns, part in self._times.cut(self.offset, data):
            chunks.append(Chunk(t_ns, self.attempt, self.rank, self.stream, self.offset, part))
            self.offset += len(part)
        return chunks

    def lines(self, count: int) -> Iterator[LogLine]:
        """All its lines, reading `count` bytes at a time."""
        splitter = LineSplitter()
        while chunks := self.read(count):
            for chunk in chunks:
                yield from (self._line(line) for line in splitter.feed(chunk.t_ns, chunk.data))
        if (rest := splitter.rest()) is not None:
            yield self._line(rest)

    def _line(self, line: Line) -> LogLine:
        return LogLine(line.t_ns, self.attempt, self.rank, self.stream, line.data, line.ended)


def choose_attempt(run: RunDir, number: int | None) -> Attempt:
    """Attempt `number`, the newest without one. Raises NothingToAnalyse where it, or any, is missing."""
    attempts = run.attempts()
    if not attempts:
        raise NothingToAnalyse(f"{run.id} has started no rank, so there is no log", f"See `distdbg report {run.id}`.")
    if number is None:
        return attempts[-1]
    for attempt in attempts:
        if attempt.number == number:
            return attempt
    there = fold_ranks(a.number for a in attempts)
    raise NothingToAnalyse(f"{run.id} has no attempt {number}", f"Attempts that it has: {there}.")


def choose_ranks(attempt: Attempt, wanted: Sequence[int] | None) -> list[int]:
    """The ranks to read; None means all. Raises NothingToAnalyse for a missing rank, and lists the existing ones."""
    there = sorted(attempt.ranks())
    if not there:
        raise NothingToAnalyse(f"attempt {attempt.number} has no rank yet", "Wait for them with --follow.")
    if wanted is None:
        return there
    missing = sorted(set(wanted) - set(there))
    if missing:
        word = "ranks" if len(missing) > 1 else "rank"
        raise NothingToAnalyse(
            f"attempt {attempt.number} has no {word} {fold_ranks(missing)}", f"Ranks that it has: {fold_ranks(there)}."
        )
    return sorted(set(wanted))


def stream_readers(attempt: Attempt, ranks: Iterable[int], streams: Sequence[str] = STREAMS) -> list[StreamReader]:
    """One for each rank and stream, in that order, where or not it has a log."""
    files = {rank: attempt.rank(rank) for rank in ranks}
    return [
        StreamReader(attempt.number, rank, stream, of_rank.stream(stream), of_rank.index(stream))
        for rank, of_rank in files.items()
        for stream in streams
    ]


def merged_lines(readers: Sequence[StreamReader]) -> Iterator[LogLine]:
    """Merge lines by the time of their first byte; equal times by rank, stdout before stderr."""
    each = bytes_at_once(len(readers))
    return heapq.merge(
        *(r.lines(each) for r in readers), key=lambda line: (line.t_ns, line.rank, line.stream != "stdout")
    )


def lines_in_turn(readers: Sequence[StreamReader]) -> Iterator[LogLine]:
    """One rank after the other, its two streams merged."""
    by_rank = grouped((reader.rank, reader) for reader in readers)
    for of_rank in by_rank.values():
        yield from merged_lines(of_rank)


def raw_chunks(readers: Sequence[StreamReader]) -> Iterator[Chunk]:
    """The bytes exactly; those of two streams in the order in which they arrived."""
    if len(readers) == 1:  # nothing to order: no index is needed
        [only] = readers
        while data := _read_at(only.log, only.offset, _RAW_BYTES):
            yield Chunk(0, only.attempt, only.rank, only.stream, only.offset, data)
            only.offset += len(data)
        return
    each = bytes_at_once(len(readers))
    yield from heapq.merge(*(_chunks(r, each) for r in readers), key=lambda chunk: chunk.t_ns)


def _chunks(reader: StreamReader, count: int) -> Iterator[Chunk]:
    while chunks := reader.read(count):
        yield from chunks


def bytes_at_once(streams: int) -> int:
    """How much to read of each stream at a time, so that all together stay within bounds."""
    return max(_LEAST_BYTES, min(_MOST_BYTES, _ALL_BYTES // max(1, streams)))


def losses(attempt: Attempt) -> dict[tuple[int, str], tuple[int, str]]:
    """(rank, stream) -> bytes that never reached its log, and why: as the agents noted it."""
    found: dict[tuple[int, str], tuple[int, str]] = {}
    for node in attempt.nodes():
        with contextlib.suppress(OSError), open_regular(node.events) as events:
            for line in events:
                if b'"log-lost"' not in line:
                    continue
                with contextlib.suppress(
                    ValueError, TypeError, KeyError, RecursionError, OverflowError
                ):  # cut short by a dying node
                    event = json.loads(line)
                    key = int(event["rank"]), str(event["stream"])
                    before = found.get(key, (0, ""))[0]
                    found[key] = before + int(event["bytes"] or 0), str(event["because"])
    return found


def _read_at(path: Path, offset: int, count: int) -> bytes:
    """Empty at the end, and where there is no such file or it cannot be read now."""
    try:
        with open_regular(path, buffering=0) as file:
            file.seek(offset)
            return file.read(count) or b""
    except OSError:
        return b""
