"""The child that knows torch ends with the process that asked it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import processes_of

pytestmark = pytest.mark.slow

ENDLESS = """
import sys, time
from pathlib import Path

def make():
    assert sys.stdin.read() == ""
    Path(__file__).with_name("begun").touch()
    time.sleep(3600)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_task_whose_asker_was_ended(signum: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    begun = tmp_path / "begun"
    asker = subprocess.Popen([sys.executable, "-m", "distdbg", "memory", "estimate", "train.py:make"], cwd=tmp_path)
    while not begun.exists():
        assert asker.poll() is None
        time.sleep(0.05)
    os.kill(asker.pid, signum)
    asker.wait()
    end = time.monotonic() + 60
    while processes_of(tmp_path):
        assert time.monotonic() < end, "it went on without its asker"
        time.sleep(0.05)
