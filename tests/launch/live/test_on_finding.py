"""The command of --on-finding: what it gets, what ends it, and that it ends with us. No torch is started.

The autouse fixture `no_orphans` looks for left-overs after each test.
"""

import signal
import subprocess
import sys
import time

import pytest

#: It says that it runs, and takes its time, as a child of its own does.
SLOW = "cat > seen; touch runs; sleep 300 & sleep 300"
TELLS = "import pathlib, sys; from distdbg.launch.live.on_finding import tell_finding\n"
TELLS += "tell_finding(sys.argv[1], pathlib.Path('report.json')); sys.exit(7)"


def telling(folder, command):
    (folder / "report.json").write_text("the report")
    process = subprocess.Popen([sys.executable, "-c", TELLS, command], cwd=folder, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while "runs" in command and not (folder / "runs").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("manner", ["plain", "stubborn"])
def test_ctrl_c_ends_the_command_and_not_the_exit_code(tmp_path, manner):
    process = telling(tmp_path, f"trap '' TERM; {SLOW}" if manner == "stubborn" else SLOW)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 7 and said.endswith("was ended by SIGINT\n"), said
    assert (tmp_path / "seen").read_text() == "the report"


def test_nothing_of_it_outlives_us(tmp_path):
    process = telling(tmp_path, f"trap '' TERM; {SLOW}")
    process.kill()
    process.communicate(timeout=60)


def test_what_it_leaves_on_purpose_stays_and_its_exit_code_is_reported(tmp_path):
    process = telling(tmp_path, "(sleep 0.5; cat report.json > later) >/dev/null 2>&1 & exit 3")
    assert "ended with exit code 3" in process.communicate(timeout=60)[1]
    assert process.returncode == 7
    end = time.monotonic() + 60
    while not (tmp_path / "later").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
