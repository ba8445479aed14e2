"""Run a command, each time in a directory of its own, and record the outcome."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from distdbg.assets import MAIN
from distdbg.errors import UsageError
from distdbg.evidence import jsonl
from distdbg.protocol.facts import ShrunkFact
from distdbg.rundir import RunDir, open_regular
from distdbg.shrink.bisect.command import Command
from distdbg.whole_file import open_own

#: A launch that was interrupted ends its ranks, and writes its report.
_TO_END_S = 60.0
_MAX_REPORT_BYTES, _MAX_FACTS_BYTES = 64 << 20, 16 << 20


@dataclass(frozen=True)
class BisectRun:
    """`report` is the run's report.json, None where the command is no launch or wrote none; `kept` the most layers of
    any stack that a rank kept of how many, None where no rank reported that layers were left out."""

    number: int
    command: Command
    exit_code: int
    seconds: float
    over_time: bool
    report: dict[str, Any] | None
    kept: tuple[int, int] | None


class Trials:
    """Runs below one folder: `<folder>/001/` is a run directory, `<folder>/001.log` what the terminal would show."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[BisectRun] = []

    def run(self, command: Command, limit_s: float | None) -> BisectRun:
        """Run to the end, or past `limit_s` end it as Ctrl-C would. Raises UsageError where it cannot be started."""
        number = len(self.done) + 1
        run = RunDir(self.folder / f"{number:03d}")
        begun = time.monotonic()
        with os.fdopen(open_own(self.log(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as log:
            # A session of its own: Ctrl-C on the terminal is passed on, once, and by us.
            process = _started(words(command, run.path), log)
            try:
                code, over = process.wait(limit_s), False
            except subprocess.TimeoutExpired:
                code, over = _end(process), True
            except BaseException:
                _end(process)
                raise
        seconds = time.monotonic() - begun
        report = jsonl.whole(read_beginning(run.report_json, _MAX_REPORT_BYTES))
        trial = BisectRun(number, command, code, seconds, over, report, kept_layers(run))
        self.done.append(trial)
        return trial

    def log(self, number: int) -> Path:
        return self.folder / f"{number:03d}.log"


def _started(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise UsageError(
            f"{command[0]!r} cannot be started: {error.strerror}", "Write the command behind `--`."
        ) from None


def words(command: Command, run_dir: Path) -> list[str]:
    """What is executed: a launch by this very distdbg, with its directory; a hang ends the run once it is explained."""
    if not command.launcher:
        return list(command.program)
    asked = command.with_option("--run-dir", run_dir)
    if command.option("--on-hang") is None:
        asked = asked.with_option("--on-hang", "kill")
    return [sys.executable, str(MAIN), "launch", *asked.options, "--", *asked.program]


def kept_layers(run: RunDir) -> tuple[int, int] | None:
    """(layers kept, layers before) of the largest stack that --keep-layers made shorter, as the ranks reported."""
    found: list[tuple[int, int]] = []
    for attempt in run.attempts()[:1]:
        for files in attempt.ranks().values():
            lines, _ = jsonl.objects(read_beginning(files.facts, _MAX_FACTS_BYTES))
            for _, fact in ShrunkFact.among(lines):
                pairs = [p for p in (fact.kept or {}).values() if isinstance(p, list) and len(p) == 2]
                found += [(left, of) for left, of in pairs if type(left) is int and type(of) is int]
    return max(found, key=lambda pair: pair[1], default=None)


def read_beginning(path: Path, most: int) -> str:
    """At most `most` bytes as text; empty if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def _end(process: subprocess.Popen[bytes]) -> int:
    """SIGINT to all that it is, time to clean up, then SIGKILL; its exit code."""
    for number, wait in ((signal.SIGINT, _TO_END_S), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            return process.wait(wait)
    return process.poll() or -signal.SIGKILL
