from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from distdbg.rundir import RUNS_FOLDER, RunDir, create_run_dir
from tests.conftest import Command


def make_run(parent: Path, utc: str, *, finished: int | None = 0, launcher: dict | None = None) -> RunDir:
    """A run directory as the launcher leaves it, with the time in its name as given."""
    made = create_run_dir("train", parent=parent / RUNS_FOLDER)
    path = made.path.with_name(f"{utc}-train-{made.id[-4:]}")
    made.path.rename(path)
    run = RunDir(path)
    run.job.write_text(json.dumps({"launcher": launcher or {"pid": 2**22 + 1, "host": socket.gethostname()}}))
    run.attempt(1).rank(0).folder.mkdir(parents=True)
    run.attempt(1).rank(1).folder.mkdir(parents=True)
    events = [{"t": 1000.0, "event": "launched"}]
    if finished is not None:
        events.append({"t": 1075.0, "event": "finished", "exit_code": finished})
    run.events.write_text("".join(json.dumps(e) + "\n" for e in events))
    return run


@pytest.fixture
def sleeper():
    """A process that stands for a launcher that is alive."""
    process = subprocess.Popen(["sleep", "600"])
    ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    yield {"pid": process.pid, "host": socket.gethostname(), "start_ticks": ticks}
    process.kill()
    process.wait()


def test_lists_every_run_with_its_end(distdbg: Command, tmp_path: Path, sleeper: dict) -> None:
    make_run(tmp_path, "20260101T000000Z", finished=0)
    make_run(tmp_path, "20260102T000000Z", finished=1)
    dead = make_run(tmp_path, "20260103T000000Z", finished=None)
    make_run(tmp_path, "20260104T000000Z", finished=None, launcher=sleeper)
    done = distdbg("runs")
    assert done.code == 0, done
    rows = [line.split() for line in done.out.splitlines()]
    assert [row[1] for row in rows] == ["OUTCOME", "succeeded", "failed", "unknown", "running"]
    assert rows[1][2:5] == ["0", "2", "0:01:15"]
    assert f"{dead.id}: its launcher is gone and wrote no end" in done.err


def test_json_says_the_same(distdbg: Command, tmp_path: Path) -> None:
    run = make_run(tmp_path, "20260101T000000Z", finished=7)
    value = json.loads(distdbg("runs", "--json").out)
    assert value["schema"] == "distdbg.runs/1"
    [entry] = value["runs"]
    assert (entry["id"], entry["outcome"], entry["exit_code"], entry["live"]) == (run.id, "failed", 7, False)
    assert entry["size_bytes"] > 100 and entry["ended"] - entry["started"] == 75


@pytest.mark.parametrize(
    ("attempt", "ended", "outcome"), [(1, 1074.0, "hung"), (2, 1074.0, "failed"), (1, 999.0, "failed")]
)
def test_outcome_of_report_counts_if_run_has_not_gone_on(
    distdbg: Command, tmp_path: Path, attempt: int, ended: float, outcome: str
) -> None:
    run = make_run(tmp_path, "20260101T000000Z", finished=75)
    run.report_json.write_text(json.dumps({"outcome": "hung", "run": {"attempt": 1, "ended": ended}}))
    run.attempt(attempt).folder.mkdir(parents=True, exist_ok=True)
    assert json.loads(distdbg("runs", "--json").out)["runs"][0]["outcome"] == outcome


def test_without_a_run_it_says_where_it_looked(distdbg: Command, tmp_path: Path) -> None:
    done = distdbg("runs")
    assert done.code == 3 and str(tmp_path / RUNS_FOLDER) in done.err and not done.out


def test_prune_keeps_the_newest_and_what_runs(distdbg: Command, tmp_path: Path, sleeper: dict) -> None:
    old = make_run(tmp_path, "20250101T000000Z")
    live = make_run(tmp_path, "20250102T000000Z", finished=None, launcher=sleeper)
    elsewhere = make_run(tmp_path, "20250103T000000Z", finished=None, launcher={"pid": 1, "host": "node7"})
    newest = make_run(tmp_path, "20250104T000000Z")
    dry = distdbg("runs", "prune", "--keep", "1", "--dry-run")
    assert dry.code == 0 and old.path.exists() and f"would go {old.id}" in dry.out, dry
    done = distdbg("runs", "prune", "--keep", "1")
    assert done.code == 0, done
    assert [p.path.exists() for p in (old, live, elsewhere, newest)] == [False, True, True, True]
    assert f"{live.id}: it still runs" in done.out and "node7" in done.out
    assert os.readlink(newest.path.parent / "latest") == newest.id
    assert not list(newest.path.parent.glob(".removing*"))


def test_a_pid_that_was_given_out_again_is_not_the_launcher(distdbg: Command, tmp_path: Path, sleeper: dict) -> None:
    run = make_run(tmp_path, "20250101T000000Z", finished=None, launcher={**sleeper, "start_ticks": 1})
    distdbg("runs", "prune", "--keep", "0")
    assert not run.path.exists()


def test_prune_by_age_takes_both_conditions(distdbg: Command, tmp_path: Path) -> None:
    old, older_half = make_run(tmp_path, "20250101T000000Z"), make_run(tmp_path, "20250102T000000Z")
    for run in (old, older_half):
        run.events.write_text(json.dumps({"t": 1.0, "event": "finished", "exit_code": 0}) + "\n")
    assert distdbg("runs", "prune", "--keep", "1", "--older-than", "14d").code == 0
    assert not old.path.exists() and older_half.path.exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [([], "--keep"), (["--older-than", "soon"], "'soon' is no age"), (["--keep", "-1"], "-1")],
)
def test_prune_says_what_is_wrong(distdbg: Command, tmp_path: Path, options: list[str], word: str) -> None:
    run = make_run(tmp_path, "20250101T000000Z")
    done = distdbg("runs", "prune", *options)
    assert done.code == 2 and word in done.err and run.path.exists(), done
