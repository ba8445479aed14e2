"""`sudo distdbg hang-dump` of another user's run: root's stacks, and nothing of root's in the user's directory."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from distdbg.rundir import DUMPS_FOLDER, RUNS_FOLDER, RunDir, list_runs
from tests.cluster.bed import USER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("bed")]
ROOT = Path(__file__).resolve().parents[2]
DISTDBG = (sys.executable, "-m", "distdbg")
#: Rank 1 sleeps while rank 0 waits for it.
HANGS = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    open("asleep", "w").close()
    time.sleep(1000)
dist.all_reduce(torch.ones(1))
"""


@pytest.fixture
def users_run(bed):
    """A run of a user who is not root, in the user's own folder, whose rank 1 is asleep."""
    home = bed.shared / f"user{len(list(bed.shared.iterdir()))}"
    home.mkdir()
    (home / "hangs.py").write_text(HANGS)
    for path in (home, home / "hangs.py"):
        os.chown(path, USER, USER)
    line = ["sh", "-c", 'cd "$0" && exec "$@"', str(home), *DISTDBG, "launch", "--nproc-per-node", "2", "hangs.py"]
    with (home.parent / f"{home.name}.out").open("wb") as out:
        launcher = bed.popen("node1", *line, user=USER, env={"PYTHONPATH": str(ROOT)}, stdout=out, stderr=out)
    deadline = time.monotonic() + 120
    while not (home / "asleep").exists():
        assert launcher.poll() is None and time.monotonic() < deadline, Path(out.name).read_text()
        time.sleep(0.1)
    yield list_runs(home / RUNS_FOLDER)[-1]
    launcher.send_signal(signal.SIGTERM)
    launcher.wait(60)


def hang_dump(bed, host: str, run: RunDir, folder: Path):
    """As root on a host, in root's own folder; again until enough time has passed without progress."""
    folder.mkdir()
    line = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *DISTDBG, "hang-dump", str(run.path), "--json"]
    deadline = time.monotonic() + 120
    while True:
        done = bed.run(host, *line, env={"PYTHONPATH": str(ROOT)}, timeout=120)
        if done.returncode in (4, 10) or time.monotonic() > deadline:
            return done


def owners(run: RunDir) -> set[int]:
    return {path.lstat().st_uid for path in (run.path, *run.path.rglob("*"))}


def test_root_names_the_culprit_and_leaves_the_run_to_its_owner(bed, users_run, tmp_path_factory):
    folder = bed.shared / tmp_path_factory.mktemp("root").name
    done = hang_dump(bed, "node1", users_run, folder)
    assert done.returncode == 10, done.stdout + done.stderr
    first = json.loads(done.stdout)["findings"][0]
    assert (first["id"], first["ranks"]) == ("stuck-in-python", [1])
    assert owners(users_run) == {USER}
    assert len(list((folder / DUMPS_FOLDER).glob("*/stacks/*.json"))) >= 2
    report = bed.run("node1", *DISTDBG, "report", str(users_run.path), env={"PYTHONPATH": str(ROOT)}, timeout=120)
    assert "the report files were not written: the run is another user's" in report.stderr
    assert owners(users_run) == {USER}


def test_root_on_a_host_without_the_ranks_collects_nothing(bed, users_run, tmp_path_factory):
    done = hang_dump(bed, "node2", users_run, bed.shared / tmp_path_factory.mktemp("root").name)
    assert done.returncode == 4, done.stderr
    assert owners(users_run) == {USER}
