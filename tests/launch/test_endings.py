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

from distdbg.collect.machine import procfs
from distdbg.collect.runs.run_evidence import load_evidence
from distdbg.evidence.launcher import broken_agents
from distdbg.rundir import RunDir, list_runs
from tests.conftest import processes_of

pytestmark = [pytest.mark.slow, pytest.mark.started]
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
        found = [p for p in procfs.children(self.process.pid) if "agent.py" in command_line(p)]
        return sorted(found)

    def torchruns(self):
        return [p for agent in self.agents() for p in procfs.children(agent)]

    def finish(self, seconds=60):
        out, _ = self.process.communicate(timeout=seconds)
        self.output = out.decode()
        return self.process.returncode

    def gone(self):
        return all((procfs.stat_fields(pid) or ["Z"])[0] in "ZX" for pid in self.ranks.values())

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


HANDLES = ("--signals-to-handle", "SIGTERM,SIGUSR1")


@pytest.mark.parametrize(
    ("sent", "options", "saved"),
    [("SIGHUP", (), "SIGHUP"), ("SIGQUIT", (), "SIGQUIT"), ("SIGUSR1", HANDLES, "SIGUSR1"), ("SIGINT", (), "SIGTERM")],
)
def test_ranks_get_the_signal_that_torchrun_would_pass_on_and_the_time_to_save(tmp_path, sent, options, saved):
    """But for Ctrl-C, which docs/launch.md says differs."""
    job = Job(tmp_path, "saves", *options)
    number = signal.Signals[sent]
    job.process.send_signal(number)
    if sent == "SIGHUP":  # the shell sends one, and the kernel
        wait_until(lambda: any(job.events("stopping")))
        job.process.send_signal(number)
    assert job.finish() == 128 + number, job.output
    assert {path.name for path in tmp_path.glob("SIG*")} == {f"{saved}-{rank}" for rank in range(4)}
    assert (job.report()["outcome"], job.report()["findings"]) == ("cancelled", [])
    if sent == saved:
        assert plain_torchrun(tmp_path / "plain", number, *options) == {f"{saved}-0"}


def plain_torchrun(folder, number, *options):
    """What its rank has noted."""
    folder.mkdir()
    words = ["-m", "torch.distributed.run", *options, str(WAITS), str(folder), "saves"]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as process:
        wait_until((folder / "ready-0").exists)
        process.send_signal(number)
    return {path.name for path in folder.glob("SIG*")}


def test_torchruns_own_shutdown_timeout_is_the_users_and_else_the_grace_period(tmp_path):
    job = Job(tmp_path, "stubborn", "--grace", "200", "--shutdown-timeout", "1")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.output
    assert not any(job.events("killing")), "torchrun killed them"
    read = "from torch.distributed.launcher.api import LaunchConfig as C; print(C(1, 1, 1).shutdown_timeout)"
    shown = subprocess.run([*command("--grace", "200", "--dry-run", str(WAITS))], capture_output=True, text=True)
    line = next(line for line in shown.stdout.splitlines() if "SHUTDOWN_TIMEOUT" in line)
    code = f"{line}\n{sys.executable} -c '{read}'"
    assert subprocess.run(["sh", "-c", code], capture_output=True, text=True).stdout == "200\n"


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


def test_daemon_of_a_rank_outlives_the_launcher_as_it_outlives_torchrun(tmp_path):
    """docs/launch.md says so; all ranks end."""
    job = Job(tmp_path, "daemon", "--grace", "1")
    daemon = int((tmp_path / "daemon").read_text())
    job.process.kill()
    job.process.wait()
    wait_until(job.gone)
    wait_until(lambda: list(processes_of(tmp_path)) == [daemon])
    assert "sleep" in command_line(daemon)
    os.kill(daemon, signal.SIGKILL)


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


def plant(folder, code):
    """`code` runs in the launcher and in the agents, before anything of theirs; the environment that it takes."""
    (folder / "planted").mkdir()
    (folder / "planted" / "sitecustomize.py").write_text(code)
    (folder / "train.py").write_text("print('trained')")
    return {"PYTHONPATH": str(folder / "planted")}


def test_an_error_of_ours_in_the_report_costs_the_job_nothing(distdbg, tmp_path):
    code = """
import sys
if "distdbg" in sys.orig_argv:
    from distdbg.diagnosis import verdict
    def breaks(_evidence):
        raise KeyError("planted")
    verdict.build_report = breaks
"""
    result = distdbg("launch", "train.py", env=plant(tmp_path, code))
    assert (result.code, result.out) == (0, "trained\n"), result
    assert "KeyError: 'planted'" in result.err and "could not be explained" in result.err
    events = [json.loads(line) for line in result.run.events.read_text().splitlines()]
    assert [e["event"] for e in events[-3:]] == ["agents-gone", "report-failed", "finished"]
    assert events[-1]["exit_code"] == 0


def test_the_last_words_of_an_agent_stand_in_the_run(distdbg, tmp_path):
    code = """
import sys
if any(word.endswith("/agent.py") for word in sys.orig_argv):
    from distdbg.launch.agent import rank_watch
    def breaks(*_given, **_named):
        raise KeyError("planted")
    rank_watch.RankWatch.__init__ = breaks
"""
    result = distdbg("launch", "train.py", env=plant(tmp_path, code))
    assert result.code == 1, result
    (node,) = result.run.attempt(1).nodes()
    said = node.agent_log.read_text()
    assert said.startswith("Traceback") and said.endswith("KeyError: 'planted'\n") and "trained" not in said
    assert [agent.exit_code for agent in broken_agents(load_evidence(result.run))] == [1]


def test_no_rank_outlives_a_torchrun_killed_before_the_rank_was_found(tmp_path):
    code = """
import sys
if any(word.endswith("/agent.py") for word in sys.orig_argv):
    from distdbg.launch.agent import rank_watch
    rank_watch.find_ranks = lambda *_given: []
"""
    process = subprocess.Popen(
        [sys.executable, "-m", "distdbg", "launch", "--run-dir", "run", "--nproc-per-node", "2", "--grace", "1",
         "--worker-side", "off", str(WAITS), str(tmp_path), "plain"],
        cwd=tmp_path, env={**os.environ, **plant(tmp_path, code)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    ready = [tmp_path / f"ready-{rank}" for rank in range(2)]
    wait_until(lambda: all(path.exists() for path in ready))
    pids = [int(path.read_text()) for path in ready]
    (torchrun,) = {int(procfs.stat_fields(pid)[1]) for pid in pids}
    os.kill(torchrun, signal.SIGKILL)
    assert process.wait(60) not in (0, None)
    assert all((procfs.stat_fields(pid) or ["Z"])[0] in "ZX" for pid in pids)
    evidence = load_evidence(RunDir(tmp_path / "run"))
    assert [(rank.pid, rank.exit_code) for rank in evidence.ranks] == [(pid, -signal.SIGTERM) for pid in pids]
