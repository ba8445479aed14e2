"""A launch whose output is not read, or no longer: the job, its report and its exit code are the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.rundir import RunDir

pytestmark = pytest.mark.slow

LINES = b"".join(b"%d %s\n" % (i, b"x" * 1000) for i in range(300))  # a pipe holds 64 KiB
SCRIPT = "for i in range(300): print(i, 'x' * 1000)"


def launch(tmp_path: Path, stderr: int = subprocess.STDOUT) -> subprocess.Popen[bytes]:
    (tmp_path / "talks.py").write_text(SCRIPT)
    line = [sys.executable, "-m", "distdbg", "launch", "--run-dir", "run", "talks.py"]
    return subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr)


def wait_until(what: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def has_finished(run: RunDir) -> bool:
    return run.events.exists() and b'"finished"' in run.events.read_bytes()


def test_job_ends_while_nobody_reads_and_the_reader_gets_all_later(tmp_path: Path) -> None:
    launched = launch(tmp_path, subprocess.PIPE)
    run = RunDir(tmp_path / "run")
    wait_until(lambda: has_finished(run))
    assert json.loads(run.report_json.read_text())["outcome"] == "succeeded"
    time.sleep(3)  # longer than an output that stands still is waited for before the report
    assert launched.poll() is None
    out, err = launched.communicate(timeout=60)
    assert launched.returncode == 0 and out == LINES
    assert err.count(b"the reader of its output does not read") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_wait_with_the_exit_code_of_the_job(tmp_path: Path, number: int) -> None:
    launched = launch(tmp_path)
    wait_until(lambda: has_finished(RunDir(tmp_path / "run")))
    while launched.poll() is None:
        os.kill(launched.pid, number)
        time.sleep(0.2)
    assert launched.returncode == 0


def test_job_goes_on_after_the_reader_of_both_outputs_has_gone(tmp_path: Path) -> None:
    launched = launch(tmp_path)
    assert launched.stdout is not None
    assert b"everything about this run in run" in launched.stdout.readline()
    launched.stdout.close()
    assert launched.wait(60) == 0
    run = RunDir(tmp_path / "run")
    assert has_finished(run) and run.attempt(1).rank(0).stdout.read_bytes() == LINES
