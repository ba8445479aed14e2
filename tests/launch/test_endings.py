"""Who dies with whom: signals, and the death of the launcher, of an agent, of torchrun. Nothing is left behind.

The autouse fixture `no_orphans` looks for left-overs after each test.
"""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.launch import processes
from distdbg.rundir import list_runs

pytestmark = pytest.mark.slow
WAITS = Path(__file__).parents[1] / "programs" / "waits.py"
#: Before a command that leads a session: the terminal on its standard input becomes the session's.
OWN_TERMINAL = [
    sys.executable,
    "-c",
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])",
]


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return value


def command(*words):
    return [sys.executable, "-m", "distdbg", "launch", "--nodes", "2", "--nproc-per-node", "2", *words]


class Job:
    """A launch of waits.py on 2 nodes x 2 ranks that has come to `ready`."""

    def __init__(self, folder, manner="plain", *options, terminal=None):
        self.folder = folder
        self.process = subprocess.Popen(
            [*(OWN_TERMINAL if terminal else ()), *command(*options, str(WAITS), str(folder), manner)],
            cwd=folder,
            stdin=terminal or subprocess.DEVNULL,
            stdout=terminal or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=terminal is not None,
        )
        wait_until(lambda: all((folder / f"ready-{r}").exists() or self.process.poll() is not None for r in range(4)))
        wait_until(lambda: sum(self.events("rank-started")) == 4)
        self.ranks = {r: int((folder / f"ready-{r}").read_text()) for r in range(4)}

    def events(self, name):
        run = list_runs(self.folder / "distdbg-runs")[-1]
        for path in run.path.glob("attempts/1/nodes/*/events.jsonl"):
            for line in path.read_text().splitlines():
                if json.loads(line)["event"] == name:
                    yield 1

    def agents(self):
        found = [p for p in processes.children(self.process.pid) if "agent.py" in command_line(p)]
        return sorted(found)

    def torchruns(self):
        return [p for agent in self.agents() for p in processes.children(agent)]

    def finish(self, seconds=60):
        out, _ = self.process.communicate(timeout=seconds)
        self.output = out.decode()
        return self.process.returncode

    def gone(self):
        return all((processes.stat_fields(pid) or ["Z"])[0] in "ZX" for pid in self.ranks.values())

    def report(self):
        return json.loads(list_runs(self.folder / "distdbg-runs")[-1].report_json.read_text())


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""


def test_ctrl_c_ends_the_job_gently(tmp_path):
    job = Job(tmp_path)
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 130, job.output
    assert job.gone()
    assert job.report()["outcome"] == "cancelled"
    assert job.report()["findings"] == [], "a cancelled job has nothing wrong with it"


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path):
    job = Job(tmp_path, "stubborn", "--grace", "1")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.output
    assert job.gone()


def test_ctrl_c_twice_ends_it_at_once(tmp_path):
    job = Job(tmp_path, "stubborn", "--grace", "120")
    job.process.send_signal(signal.SIGINT)
    wait_until(lambda: any(job.events("stopping")))
    job.process.send_signal(signal.SIGINT)
    assert job.finish(30) == 130, job.output
    assert job.gone()


def test_user_signals_reach_ranks_that_handle_them_and_a_hangup_ends_the_job(tmp_path):
    job = Job(tmp_path, "notes")
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        job.process.send_signal(number)
        wait_until(lambda name=number.name: all((tmp_path / f"{name}-{r}").exists() for r in range(4)))
    assert not job.gone()
    job.process.send_signal(signal.SIGHUP)
    assert job.finish() == 129, job.output
    assert job.gone()
    assert job.report()["outcome"] == "cancelled"


def test_nothing_outlives_a_terminal(tmp_path):
    """Its window is closed: what is written there from then on fails, and the job is still ended and explained."""
    ours, theirs = pty.openpty()
    job = Job(tmp_path, "plain", "--grace", "5", terminal=theirs)
    os.close(theirs)
    os.close(ours)
    assert job.process.wait(60) == 129
    assert job.gone()
    assert job.report()["outcome"] == "cancelled"


def test_nothing_outlives_a_launcher_killed_by_sigkill(tmp_path):
    job = Job(tmp_path, "stubborn", "--grace", "1")
    job.process.kill()
    job.process.wait()
    wait_until(job.gone)


def test_nothing_outlives_an_agent_killed_by_sigkill(tmp_path):
    job = Job(tmp_path, "plain", "--grace", "2")
    os.kill(job.agents()[1], signal.SIGKILL)
    assert job.finish() not in (0, None), job.output
    assert job.gone()
    assert job.report()["outcome"] == "failed"


def test_nothing_outlives_a_torchrun_killed_by_sigkill(tmp_path):
    job = Job(tmp_path, "stubborn", "--grace", "1")
    os.kill(job.torchruns()[0], signal.SIGKILL)
    assert job.finish() not in (0, None), job.output
    assert job.gone()
    assert job.report()["outcome"] == "failed"
