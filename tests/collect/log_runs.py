"""Run directories with logs, as an agent leaves them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from distdbg.rundir import RUNS_FOLDER, RunDir, create_run_dir

SECOND = 10**9
START = 1_700_000_000 * SECOND


class WrittenRun:
    """`say(rank, text, at=1.5)` is what the agent does with a rank's words, 1.5 s after the start."""

    def __init__(self, parent: Path, ranks: Sequence[int] = ()) -> None:
        self.run = create_run_dir("train", parent=parent / RUNS_FOLDER)
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        launcher = {"pid": os.getpid(), "host": socket.gethostname(), "start_ticks": ticks}
        self.run.job.write_text(json.dumps({"launcher": launcher}))
        for rank in ranks:
            self.add_rank(rank)

    def add_rank(self, rank: int, attempt: int = 1) -> None:
        self.run.attempt(attempt).rank(rank).folder.mkdir(parents=True, exist_ok=True)

    def say(
        self, rank: int, text: str | bytes, at: float | None, stream: str = "stdout", attempt: int = 1
    ) -> WrittenRun:
        data = text.encode() if isinstance(text, str) else text
        self.add_rank(rank, attempt)
        files = self.run.attempt(attempt).rank(rank)
        with files.stream(stream).open("ab") as log:
            offset = log.tell()
            log.write(data)
        if at is not None:
            with files.index(stream).open("ab") as index:
                index.write(b"%d %d %d\n" % (START + int(at * SECOND), offset, len(data)))
        return self

    def lose(self, rank: int, stream: str, count: int, because: str) -> None:
        events = self.run.attempt(1).node(0, "host").events
        events.parent.mkdir(parents=True, exist_ok=True)
        record = {"t": 1.0, "event": "log-lost", "rank": rank, "stream": stream, "bytes": count, "because": because}
        with events.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def finish(self, exit_code: int = 0) -> RunDir:
        with self.run.events.open("a") as file:
            file.write(json.dumps({"t": 1.0, "event": "finished", "exit_code": exit_code}) + "\n")
        return self.run
