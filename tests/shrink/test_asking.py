"""The child that knows torch ends with the process that asked it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ENDLESS = """
import os, sys, time
from pathlib import Path

def make():
    assert sys.stdin.read() == ""
    here = Path(__file__).with_name("child.tmp")
    here.write_text(str(os.getpid()))
    here.rename(here.with_name("child"))
    time.sleep(3600)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_task_whose_asker_was_ended(signum: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    told = tmp_path / "child"
    asker = subprocess.Popen([sys.executable, "-m", "distdbg", "memory", "estimate", "train.py:make"], cwd=tmp_path)
    while not told.exists():
        assert asker.poll() is None
        time.sleep(0.05)
    child = int(told.read_text())
    os.kill(asker.pid, signum)
    asker.wait()
    end = time.monotonic() + 60
    while _lives(child):
        assert time.monotonic() < end, "it went on without its asker"
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    """A zombie whose new parent has not looked yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
