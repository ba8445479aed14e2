"""Launches under a limit of processes that is too low for distdbg, for its agent or for torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.rundir import list_runs

pytestmark = pytest.mark.slow


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A control group that limits the number of its processes and threads; skips where none can be made."""
    parents = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
    parent = next((p for p in parents if (p / "cgroup.procs").exists()), None)
    if os.geteuid() != 0 or parent is None:
        pytest.skip("not possible here: no control group can be made")
    group = parent / f"distdbg-test-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / "pids.max").exists():
            pytest.skip("not possible here: the control group has no limit of processes")
        yield group
    finally:
        deadline = time.monotonic() + 30
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        group.rmdir()


@pytest.mark.parametrize("limit", [2, 4, 7, 10])
def test_each_limit_is_named_and_no_part_ends_with_a_traceback_alone(
    limited_group: Path, tmp_path: Path, limit: int
) -> None:
    (limited_group / "pids.max").write_text(str(limit))
    (tmp_path / "train.py").write_text("print('trained')")
    join = f'echo $$ > {limited_group}/cgroup.procs; exec "$@"'
    line = ["sh", "-c", join, "sh", sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    runs = list_runs(tmp_path / "distdbg-runs")
    if done.returncode == 2:
        assert "no more processes or threads can be started" in done.stderr and "pids.max" in done.stderr
    else:
        assert done.returncode == 1
        (finding,) = json.loads(runs[-1].report_json.read_text())["findings"]
        assert finding["id"] == "launch-failed" and "[no-processes]" in finding["cause"], finding
    assert "an error of distdbg's own" not in done.stderr and "Traceback" not in done.stderr
