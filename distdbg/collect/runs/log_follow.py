"""Follow the logs of a run, also of ranks and attempts that start later.

By looking (20 times a second at what moves), not by inotify: a run directory may lie on a network file system, where
another host's writes raise no event.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence

from distdbg.collect.runs.log_reader import STREAMS, Chunk, LogLine, StreamReader, bytes_at_once, stream_readers
from distdbg.collect.runs.run_status import run_status
from distdbg.evidence.logs.index import LineSplitter
from distdbg.rundir import RunDir

LOOK_EVERY_S = 0.05
_LOOK_FOR_NEW_S = 0.25
_LOOK_FOR_END_S = 0.5
#: A stream that grew within this time is looked at each time, of the others this many.
_LIVELY_S = 2.0
_OTHERS_A_LOOK = 256


class _LogTail:
    """A stream's reader, and what it has read that must wait for other streams' earlier bytes."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.waiting: deque[Chunk] = deque()
        self.waiting_bytes = 0
        self.lively_until = time.monotonic() + _LIVELY_S
        self.more = False

    def look(self, count: int, now: float) -> None:
        if self.waiting_bytes >= count:
            return
        came = self.reader.read(count)
        self.waiting.extend(came)
        self.waiting_bytes += sum(len(chunk.data) for chunk in came)
        self.more = bool(came) and self.reader.size() > self.reader.offset
        if came:
            self.lively_until = now + _LIVELY_S

    def take(self) -> Chunk:
        chunk = self.waiting.popleft()
        self.waiting_bytes -= len(chunk.data)
        return chunk


class LogFollower:
    """`poll` gives what has come since, in the order of time; `has_ended` says that nothing more will.

    `ranks` None follows all; `attempt` None follows the newest and every later one.
    """

    def __init__(
        self,
        run: RunDir,
        ranks: Sequence[int] | None = None,
        streams: Sequence[str] = STREAMS,
        attempt: int | None = None,
    ) -> None:
        self._run = run
        self._ranks = set(ranks) if ranks is not None else None
        self._streams = streams
        self._attempt = attempt
        self._tails: dict[tuple[int, int], list[_LogTail]] = {}
        self._looked_for_new = self._looked_for_end = float("-inf")
        self._turn = 0
        self._ended = False

    def poll(self) -> list[Chunk]:
        """What has come, as much as fits into memory; empty where nothing has."""
        now = time.monotonic()
        if now - self._looked_for_new >= _LOOK_FOR_NEW_S:
            self._looked_for_new = now
            self._look_for_new()
        tails = [tail for pair in self._tails.values() for tail in pair]
        each = bytes_at_once(2 * len(tails))
        for tail in self._chosen(tails, now):
            if tail.lively_until > now or tail.reader.size() > tail.reader.offset:
                tail.look(each, now)
        return _in_order(tails)

    def has_ended(self) -> bool:
        """True once the run has, and all of its logs have been given. Looks at most twice a second."""
        now = time.monotonic()
        if not self._ended and now - self._looked_for_end >= _LOOK_FOR_END_S:
            self._looked_for_end = now
            status = run_status(self._run)
            self._ended = status.live is False or status.ended is not None
            self._looked_for_new = float("-inf")
            return False  # what was written between the last poll and the end is still to be read
        return self._ended and not self.behind()

    def behind(self) -> bool:
        """Whether anything is there that has not been given."""
        self._look_for_new()
        tails = [tail for pair in self._tails.values() for tail in pair]
        return any(tail.waiting or tail.reader.size() > tail.reader.offset for tail in tails)

    def _look_for_new(self) -> None:
        attempts = self._run.attempts()
        if self._attempt is None and attempts:
            oldest = min([number for number, _ in self._tails] or [attempts[-1].number])
            attempts = [a for a in attempts if a.number >= oldest]
        else:
            attempts = [a for a in attempts if a.number == self._attempt]
        for attempt in attempts:
            missing = (
                None if self._ranks is None else {r for r in self._ranks if (attempt.number, r) not in self._tails}
            )
            there = attempt.ranks() if missing is None else {r for r in missing if attempt.rank(r).folder.is_dir()}
            for rank in there:
                if (attempt.number, rank) not in self._tails:
                    readers = stream_readers(attempt, [rank], self._streams)
                    self._tails[attempt.number, rank] = [_LogTail(reader) for reader in readers]

    def _chosen(self, tails: list[_LogTail], now: float) -> list[_LogTail]:
        """What moves, and some of the rest in turn."""
        if len(tails) <= _OTHERS_A_LOOK:
            return tails
        self._turn = (self._turn + _OTHERS_A_LOOK) % len(tails)
        others = (tails[self._turn :] + tails[: self._turn])[:_OTHERS_A_LOOK]
        return list(dict.fromkeys([*others, *(t for t in tails if t.lively_until > now or t.more)]))


def _in_order(tails: list[_LogTail]) -> list[Chunk]:
    """Everything up to the time at which a stream's unread bytes may begin."""
    limit = min((tail.waiting[-1].t_ns for tail in tails if tail.waiting and tail.more), default=None)
    ready: list[Chunk] = []
    for tail in tails:
        while tail.waiting and (limit is None or tail.waiting[0].t_ns <= limit):
            ready.append(tail.take())
    ready.sort(key=lambda chunk: chunk.t_ns)  # stable: a stream's own order stays
    return ready


class LineAssembler:
    """Chunks of many streams into whole lines, each given when it is complete."""

    def __init__(self) -> None:
        self._splitters: dict[tuple[int, int, str], LineSplitter] = {}

    def feed(self, chunks: Iterable[Chunk]) -> list[LogLine]:
        lines: list[LogLine] = []
        for chunk in chunks:
            key = chunk.attempt, chunk.rank, chunk.stream
            splitter = self._splitters.setdefault(key, LineSplitter())
            lines += [LogLine(t, *key, data, ended) for t, data, ended in splitter.feed(chunk.t_ns, chunk.data)]
        return lines

    def rest(self) -> list[LogLine]:
        """What has no newline, at the end of everything."""
        rests = [(key, splitter.rest()) for key, splitter in self._splitters.items()]
        return [LogLine(line.t_ns, *key, line.data, line.ended) for key, line in rests if line is not None]

    @property
    def partial(self) -> dict[tuple[int, str], bytes]:
        """(rank, stream) -> the line that is still being printed; only where there is one."""
        found = {(rank, stream): s.partial for (_, rank, stream), s in self._splitters.items()}
        return {key: data for key, data in found.items() if data}
