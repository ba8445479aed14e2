"""Runs of a command, each in a directory of its own, and what came of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from distdbg.errors import UsageError
from distdbg.rundir import RunDir
from distdbg.shrink.bisect.command import Command
from distdbg.whole_file import open_own

#: A launch that was interrupted ends its ranks, and writes its report.
_TO_END_S = 60.0


@dataclass(frozen=True)
class Trial:
    """`report` is the run's report.json, None where the command is no launch or wrote none; `kept` the most layers of
    any stack that a rank kept of how many, None where none told that layers were left out."""

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
        self.done: list[Trial] = []

    def run(self, command: Command, limit_s: float | None) -> Trial:
        """Run to the end, or past `limit_s` end it as Ctrl-C would. Raises UsageError where it cannot be started."""
        number = len(self.done) + 1
        run = RunDir(self.folder / f"{number:03d}")
        begun = time.monotonic()
        with _new_log(self.log(number)) as log:
            # A session of its own: Ctrl-C on the terminal is passed on, once, and by us.
            process = _started(words(command, run.path), log)
            with _ended_with_us(process):
                try:
                    code, over = process.wait(limit_s), False
                except subprocess.TimeoutExpired:
                    code, over = _end(process), True
        seconds = time.monotonic() - begun
        trial = Trial(number, command, code, seconds, over, _report(run), kept_layers(run))
        self.done.append(trial)
        return trial

    def log(self, number: int) -> Path:
        return self.folder / f"{number:03d}.log"


def _new_log(path: Path) -> IO[bytes]:
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")


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
    return [sys.executable, "-m", "distdbg", "launch", *asked.options, "--", *asked.program]


def kept_layers(run: RunDir) -> tuple[int, int] | None:
    """(layers kept, layers that there were) of the largest stack that --keep-layers made shorter, as the ranks told."""
    found: list[tuple[int, int]] = []
    for attempt in run.attempts()[:1]:
        for files in attempt.ranks().values():
            with contextlib.suppress(OSError):
                for line in files.facts.read_text(encoding="utf-8", errors="replace").splitlines():
                    found += _kept(line)
    return max(found, key=lambda pair: pair[1], default=None)


def _kept(line: str) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ValueError):
        fact = json.loads(line)
        if isinstance(fact, dict) and fact.get("kind") == "shrunk" and isinstance(fact.get("kept"), dict):
            for pair in fact["kept"].values():
                if isinstance(pair, list) and len(pair) == 2 and all(type(n) is int for n in pair):
                    yield pair[0], pair[1]


def _report(run: RunDir) -> dict[str, Any] | None:
    try:
        value = json.loads(run.report_json.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> int:
    """SIGINT to all that it is, time to clean up, then SIGKILL; its exit code."""
    for sign, wait in ((signal.SIGINT, _TO_END_S), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sign)
            return process.wait(wait)
    return process.poll() or -signal.SIGKILL
