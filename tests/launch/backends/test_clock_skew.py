"""Two hosts whose clocks differ: the launcher measures it, and the order of failures is that of one clock."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from distdbg.rundir import RUNS_FOLDER, list_runs

#: Knows two hosts, which are this one; the clock of the second is another.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case "$2" in
  here) exec sh -c "$3";;
  *) exec env {clock} sh -c "$3";;
esac
"""
#: Another clock for Python programs, and for none that they start with an environment of its own.
SITE = "import time\nreal = time.time\ntime.time = lambda: real() + 7200\n"
FAILS = """
import time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(30):
    dist.barrier()
    time.sleep(0.1)
if rank == 0:
    raise ValueError("the first")
time.sleep(0.7)
raise KeyError("the second")
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Runs a script on both hosts; returns the run and its report."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def run(script, clock):
        (tmp_path / "ssh").write_text(SSH.format(clock=clock))
        (tmp_path / "ssh").chmod(0o755)
        (tmp_path / "train.py").write_text(script)
        with socket.socket() as free:
            free.bind(("", 0))
            port = str(free.getsockname()[1])
        words = [
            "-m",
            "distdbg",
            "launch",
            "--hosts",
            "here,there",
            "--master-port",
            port,
            "--nproc-per-node",
            "1",
            "train.py",
        ]
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=150)
        (made,) = list_runs(tmp_path / RUNS_FOLDER)
        report = json.loads((made.path / "report" / "report.json").read_text())
        events = [json.loads(line) for line in made.events.read_text().splitlines()]
        return done, report, [event for event in events if event["event"] == "node-clock"]

    return run


def test_agent_with_another_clock_is_measured(tmp_path, launch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    done, report, clocks = launch("", f"PYTHONPATH={tmp_path / 'site'}")
    assert done.returncode == 0, done.stderr
    assert {clock["node_rank"] for clock in clocks} == {1}
    assert all(clock["least_s"] <= 7200 <= clock["most_s"] < 7260 for clock in clocks)
    assert [f["id"] for f in report["findings"]] == ["clock-skew"]
    assert "node 1" in report["findings"][0]["summary"] and "ahead of" in report["findings"][0]["summary"]


def test_equal_clocks_are_not_reported(launch):
    done, report, clocks = launch("", "")
    assert (done.returncode, clocks, report["findings"]) == (0, [], []), done.stderr


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize("skew", ["+2h", "-4s"])  # torchrun takes a node that is 15 s behind for dead
def test_first_failure_is_found_under_skew(launch, skew):
    done, report, clocks = launch(FAILS, f"faketime -f {skew}")
    assert done.returncode == 1 and clocks, done.stderr
    roots = [(f["id"], f["ranks"]) for f in report["findings"] if f["explained_by"] is None]
    assert roots[0] == ("rank-exception", [0]), report["findings"]
    assert ("clock-skew", []) in roots and report["exit_code_of"] == "rank 0"
