"""attach: a run that another terminal launched is followed to its end."""

import subprocess
import sys

import pytest

from tests.conftest import RUNS_FOLDER, list_runs


@pytest.mark.slow
def test_a_local_run_is_followed_and_its_verdict_shown(distdbg, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import sys, time\nprint('here', flush=True)\nsys.stdin.readline()\ntime.sleep(2)\nsys.exit(5)\n")
    command = [sys.executable, "-m", "distdbg", "launch", "train.py"]
    launched = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL)  # fmt: skip
    assert launched.stdout.readline() == b"here\n"
    (run,) = list_runs(tmp_path / RUNS_FOLDER)
    launched.stdin.close()
    done = distdbg("attach", run.id)
    assert (done.code, done.out) == (5, "here\n"), done
    assert "exit code 5: rank 0" in done.err
    launched.stdout.close()
    assert launched.wait(60) == 5
    again = distdbg("attach")
    assert again.code == 5 and "has ended: failed, exit code 5" in again.err


def test_no_run_here(distdbg):
    assert distdbg("attach").code == 3
