"""Show the logs of the chosen ranks while their job runs, followed as `distdbg logs -f` does.

Everything that may take long, a read from a frozen disk and a write to a terminal that was stopped with Ctrl-S, happens
in one thread. The launcher only asks. Nothing is lost when the terminal is slow: what is shown comes from the logs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from distdbg.collect.runs.log_follow import LOOK_EVERY_S, LineAssembler, LogFollower
from distdbg.collect.runs.log_reader import Chunk, LogLine
from distdbg.evidence.logs.lines import coloured, last_state, rank_prefix
from distdbg.rundir import RunDir
from distdbg.terminal import is_behind, write_all

Show = Literal["none", "all"] | Sequence[int]

_MOST_LINES = 500  # waiting for the live view
#: Where nothing came for so long, or where a look takes long, looks are rarer by that.
_SILENT_S, _RARER = 3.0, 10
#: A disk or a reader that takes nothing for so many seconds at the end of the job is not waited for with the report.
_STALLED_S = 2.0


@dataclass
class Shown:
    """Lines since the last look, and those that are still being printed (progress bars, prompts); each with its prefix
    if several ranks are shown, and without its newline."""

    lines: list[bytes] = field(default_factory=list)
    partial: list[bytes] = field(default_factory=list)


class Console:
    """Shows ranks from its construction until `close`.

    Not live: the thread writes by itself, standard output to descriptor `out`, standard error to `err`; one rank alone
    byte by byte, several line by line behind `[rank 3] `. Live: it writes nothing, and `poll` hands over lines.
    `world_size` decides whether "all" are several; None (not known) counts as several.
    """

    def __init__(
        self, run: RunDir, show: Show, *, world_size: int | None = None, out: int = 1, err: int = 2, live: bool = False
    ) -> None:
        ranks = None if show == "all" else () if show == "none" else tuple(int(rank) for rank in show)
        alone = world_size == 1 or (ranks is not None and len(set(ranks)) == 1)
        self._prefix = not alone
        self._live = live
        self._targets = {"stdout": out, "stderr": err}
        self._follower = LogFollower(run, ranks)
        self._assembler = LineAssembler()
        self._lock = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._finishing = False
        self._given_up = False
        #: the thread waits for the reader of the output, or for the live view
        self._is_full = False
        self._moved = time.monotonic()
        self._thread: threading.Thread | None = None
        if ranks is None or ranks:
            self._thread = threading.Thread(target=self._work, name="console", daemon=True)
            self._thread.start()

    def poll(self) -> Shown:
        """New lines for a live view; empty where the console writes by itself. Never waits for a disk or a terminal."""
        if is_behind(sys.stderr):  # a terminal that was stopped (Ctrl-S): the lines wait here
            return Shown()
        with self._lock:
            shown = Shown(list(self._lines), list(self._partial))
            self._lines.clear()
            self._lock.notify_all()
            return shown

    def close(
        self, stalled: float = _STALLED_S, longest: float = 60.0, show: Callable[[Shown], None] = lambda _: None
    ) -> bool:
        """Show what is left, when the agents are gone; a live view's `show` gets what `poll` would give.

        False where nothing moved for `stalled` seconds, or the whole took `longest`: the rest stands in the logs, and
        `finish` waits for a reader that does not read.
        """
        if self._thread is None:
            return True
        with self._lock:
            self._finishing = True
            self._moved = began = time.monotonic()
            self._lock.notify_all()
        while self._thread.is_alive():
            self._thread.join(0.02)
            show(self.poll())
            now = time.monotonic()
            if now - self._moved > stalled or now - began > longest:
                return False
        show(self.poll())
        return True

    @property
    def waits_for_reader(self) -> bool:
        """Whether the reader of the output has not taken the last part, so that more is to come."""
        return self._thread is not None and self._thread.is_alive() and self._is_full

    def finish(self, ended: Callable[[], bool], show: Callable[[Shown], None] = lambda _: None) -> None:
        """After `close`: wait until the reader has taken the rest, has gone, or `ended()`. A disk is not waited for."""
        while self._thread is not None and self._thread.is_alive() and not ended():
            if not self._is_full and time.monotonic() - self._moved > _STALLED_S:
                break
            self._thread.join(0.05)
            show(self.poll())
        self._given_up = True

    # -- the thread -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Runs until it is asked to finish and nothing is left, or the reader of our output has gone."""
        with contextlib.suppress(OSError):
            while not self._given_up:
                finishing = self._finishing  # asked before looking: what was there by then is shown
                begun = time.monotonic()
                chunks = self._follower.poll()
                took = time.monotonic() - begun
                self._show(chunks)
                if chunks:
                    self._moved = time.monotonic()
                    continue
                if finishing and not self._follower.behind():
                    self._show_lines(self._assembler.rest())
                    self._set_partial()
                    return
                with self._lock:
                    self._lock.wait_for(lambda: self._finishing, self._rest_s(took))

    def _rest_s(self, took: float) -> float:
        """Seconds until the next look: the logs' file system serves other jobs, too."""
        silent = time.monotonic() - self._moved > _SILENT_S
        return max(LOOK_EVERY_S * (_RARER if silent else 1), _RARER * took)

    def _show(self, chunks: Sequence[Chunk]) -> None:
        if self._live or self._prefix:
            self._show_lines(self._assembler.feed(chunks))
            self._set_partial()
            return
        for chunk in chunks:
            self._write(self._targets[chunk.stream], chunk.data)

    def _show_lines(self, lines: Sequence[LogLine]) -> None:
        if not self._live:
            for stream, group in groupby(lines, key=lambda line: line.stream):
                self._write(self._targets[stream], b"".join(self._text(x.rank, x.data) + b"\n" for x in group))
            return
        for line in lines:
            with self._lock:
                while len(self._lines) >= _MOST_LINES and not self._given_up:
                    self._is_full = True
                    self._lock.wait(0.1)
                self._is_full = False
                self._lines.append(self._text(line.rank, line.data))
                self._moved = time.monotonic()

    def _set_partial(self) -> None:
        if not self._live:
            return
        partial = [self._text(rank, data) for (rank, _), data in self._assembler.partial.items()]
        with self._lock:
            self._partial = partial

    def _text(self, rank: int, data: bytes) -> bytes:
        if not self._prefix:
            return last_state(data)
        return (rank_prefix(rank) + coloured(last_state(data))).encode()

    def _write(self, target: int, data: bytes) -> None:
        """All of it, however slowly."""
        self._is_full = True
        write_all(target, data, self._goes_on)
        self._is_full = False

    def _goes_on(self) -> bool:
        self._moved = time.monotonic()
        return not self._given_up
