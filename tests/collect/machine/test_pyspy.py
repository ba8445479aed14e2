"""Stacks of real processes, by the real py-spy."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.collect.machine import pyspy
from distdbg.protocol.dump import NoStacks

BODY = """
def inner(secret):
    print('ready', flush=True)
    import time; time.sleep(100)

def outer():
    inner('s3')

outer()
"""


@pytest.fixture
def sleeper(tmp_path):
    script = tmp_path / "sleeper.py"
    script.write_text(BODY)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.communicate()


def names(threads):
    return [frame["name"] for frame in threads[0]["frames"]]


def wait_until_stopped(pid):
    deadline = time.monotonic() + 10
    while (state := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != "T":
        assert time.monotonic() < deadline, state
        time.sleep(0.01)


def test_frames_come_innermost_first_and_without_the_users_values(sleeper):
    threads = pyspy.stacks(sleeper.pid, within_s=20)
    assert names(threads) == ["inner", "outer", "<module>"]
    assert all(frame["locals"] == [] for frame in threads[0]["frames"])
    with_values = pyspy.stacks(sleeper.pid, within_s=20, values=True)
    assert "s3" in str(with_values[0]["frames"][0]["locals"])


def test_one_that_is_stopped_is_read_and_stays_stopped(sleeper):
    sleeper.send_signal(signal.SIGSTOP)
    wait_until_stopped(sleeper.pid)
    assert names(pyspy.stacks(sleeper.pid, within_s=20)) == ["inner", "outer", "<module>"]
    wait_until_stopped(sleeper.pid)  # the kernel runs it for a moment after the tracer has gone, to stop it again


def test_why_there_are_none_is_said(sleeper):
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(pyspy.PySpyFailed, match=r"\w") as error:
        pyspy.stacks(sleeper.pid, within_s=20)
    assert error.value.kind is None


def test_a_process_without_python_is_no_lack_of_a_tool(need, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    with subprocess.Popen([need("sleep", "coreutils"), "60"]) as process:
        try:
            with pytest.raises(pyspy.PySpyFailed, match=r"^py-spy finds no Python in this process$") as error:
                pyspy.stacks(process.pid, within_s=20)
            assert error.value.kind is NoStacks.NO_PYTHON
        finally:
            process.kill()


def test_the_variables_of_a_stores_key_are_kept(tmp_path):
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\nclass Store:\n    get = time.sleep\n"
        "def read(store, seconds, secret):\n    print('ready', flush=True)\n    return store.get(seconds)\n"
        "read(Store(), 100, 's3')\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        frame = {}
        while frame.get("line") != 6:  # at first it can be at the end of `print`
            frame = pyspy.stacks(process.pid, within_s=20)[0]["frames"][0]
        process.kill()
    assert [variable["name"] for variable in frame["locals"]] == ["store", "seconds"]


def test_file_that_cannot_be_executed_is_not_taken_for_pyspy(tmp_path, monkeypatch):
    (tmp_path / "py-spy").write_text("#!/bin/sh\n")
    (tmp_path / "python").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(pyspy, "_INSTALLED", tmp_path / "py-spy")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pyspy.find_pyspy() is None
    with pytest.raises(pyspy.PySpyFailed, match=f"{tmp_path}/py-spy is not an executable file") as error:
        pyspy.stacks(os.getpid(), within_s=5)
    assert error.value.kind is NoStacks.NO_TOOL
    (tmp_path / "py-spy").chmod(0o755)
    assert pyspy.find_pyspy() == str(tmp_path / "py-spy")


def test_program_of_another_machine_is_no_refusal(tmp_path, monkeypatch):
    (tmp_path / "py-spy").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(pyspy.PySpyFailed, match="is not an executable file") as error:
        pyspy.stacks(os.getpid(), within_s=5)
    assert error.value.kind is NoStacks.NO_TOOL


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions by going 'sudo'", NoStacks.REFUSED),
        ("Error: Failed to open process\nReason: Operation not permitted (os error 1)", NoStacks.REFUSED),
        ("Error: No such file or directory (os error 2)", None),
    ],
)
def test_refusal_is_known_by_what_pyspy_prints(tmp_path, monkeypatch, printed, kind):
    (tmp_path / "py-spy").write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{printed}\nE\nexit 1\n")
    (tmp_path / "py-spy").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(pyspy.PySpyFailed) as error:
        pyspy.stacks(os.getpid(), within_s=5)
    assert error.value.kind is kind
