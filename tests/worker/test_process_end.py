"""A rank whose torchrun is killed ends, with and without an agent to see to it."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

BOOT = Path(__file__).parents[2] / "distdbg" / "worker" / "boot.py"

#: Stands for torchrun: starts the rank in a session of its own, as torchrun does, and waits.
PARENT = """
import subprocess, sys
rank = subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.PIPE)
print(rank.pid, rank.stdout.readline().decode().strip(), flush=True)
rank.wait()
"""


@pytest.fixture
def orphaned(tmp_path):
    """A function that starts a rank below a parent and kills the parent; gives the rank's pid."""
    with tempfile.TemporaryDirectory(prefix="ddbg") as node_dir, socket.socket(socket.AF_UNIX) as agent:
        agent.bind(f"{node_dir}/agent.sock")
        agent.listen()

        def start(script):
            (tmp_path / "script.py").write_text(script)
            command = [sys.executable, "-c", PARENT, sys.executable, "-u", str(BOOT), str(tmp_path / "script.py")]
            env = {**os.environ, "RANK": "0", "DISTDBG_NODE_DIR": node_dir}
            with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as parent:
                pid, ready = parent.stdout.readline().split()
                assert ready == b"ready"
                parent.kill()
            return int(pid)

        yield start


def gone(pid):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_it_ends(orphaned):
    assert gone(orphaned("import time\nprint('ready')\ntime.sleep(60)\n"))


def test_it_may_save_what_it_has_done(orphaned, tmp_path):
    script = f"""
import signal, sys, time
def save(number, frame):
    open({str(tmp_path / "saved")!r}, "w").write(signal.Signals(number).name)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('ready')
time.sleep(60)
"""
    assert gone(orphaned(script))
    assert (tmp_path / "saved").read_text() == signal.SIGTERM.name
