"""tests/gpu/on_hardware.sh, on the simulated GPU: its environment, its files and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import check

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SCRIPT = Path(__file__).with_name("on_hardware.sh")


def run_script(tmp_path, *arguments, path=""):
    env = {**os.environ, "PATH": path or f"{Path(sys.executable).parent}:{os.environ['PATH']}", "CI": ""}
    command = ["bash", SCRIPT, tmp_path / "output", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)


def test_the_table_of_the_simulated_gpu(tmp_path):
    done = run_script(tmp_path, "--side", "box", "-k", "healthy or beside")
    assert done.returncode == 0, done
    written = json.loads((tmp_path / "output" / "check.json").read_text())
    rows = {row["row"]: row["box"] for row in written["rows"]}
    assert rows["test_a_healthy_job_gets_nothing"] == "passed" and written["machine"]["torch"], written
    assert rows["test_memory_beside_the_allocator: a context, MiB"].isdecimal(), rows
    box = json.loads((tmp_path / "output" / check.BOX_FIGURES.name).read_text())
    assert box["rows"].keys() == {row for row in rows if check.NOT_COMPARED not in row}


def test_it_says_why_there_is_nothing_to_compare(tmp_path):
    done = run_script(tmp_path)
    assert done.returncode == check.NO_GPU and "nvidia-smi was not found" in done.stderr, done
