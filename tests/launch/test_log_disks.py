"""A whole run on a disk that is full or over quota, and on one that freezes in the middle: the job must not notice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.launch.live.explain import explain
from distdbg.launch.live.on_finding import tell_finding
from distdbg.rundir import RunDir
from tests.conftest import Command
from tests.launch.file_systems import freezable_file_system, quota, tiny_file_system
from tests.made_run import MadeRun

pytestmark = pytest.mark.slow


@pytest.fixture(params=["full", "over quota"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, dict[str, str], str]]:
    """A folder that takes about a megabyte, the environment that it needs, and what it says then."""
    if request.param == "over quota":
        yield tmp_path / "mine", quota(tmp_path / "mine", 1 << 20), "quota exceeded"
        return
    with tiny_file_system(tmp_path / "tiny") as folder:
        yield folder, {}, "full"


def test_a_page_that_cannot_be_drawn_costs_the_page_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_given: object) -> str:
        raise KeyError("planted")

    monkeypatch.setattr("distdbg.collect.runs.report_files.PageRenderer.render", breaks)
    made = MadeRun(tmp_path)
    made.exits(1, 3)
    text, report = explain(made.closes().dir)
    assert report.exit_code == 3 == json.loads(made.dir.report_json.read_text())["exit_code"]
    assert text.endswith("please report this: KeyError('planted')")


def test_a_run_on_a_disk_of_1_mb_succeeds_and_says_what_was_lost(
    distdbg: Command, tmp_path: Path, small_disk: tuple[Path, dict[str, str], str]
) -> None:
    folder, environment, because = small_disk
    script = tmp_path / "talker.py"
    script.write_text("for i in range(100_000): print(f'{i:099}')\n")  # 10 MB a rank
    options = ["--nproc-per-node", "2", "--run-dir", folder / "run", "--show-ranks", "none"]
    done = distdbg("launch", *options, script, env=environment)
    assert done.code == 0, done
    (said,) = [line for line in done.err.splitlines() if "cannot be written" in line]
    assert "the stdout of rank " in said and because in said and "The job goes on" in said
    run = RunDir(folder / "run")
    [node] = run.attempt(1).nodes()
    events = [json.loads(line) for line in node.events.read_text().splitlines()]
    lost = dict.fromkeys((0, 1), 0)
    for event in events:
        if event["event"] == "log-lost":
            assert because in event["because"] and event["stream"] == "stdout"
            lost[event["rank"]] += event["bytes"]
    for rank, files in run.attempt(1).ranks().items():
        assert lost[rank] == 10_000_000 - files.stdout.stat().st_size > 0
        assert json.loads(files.exit.read_text())["exit_code"] == 0
    report = json.loads(run.report_json.read_text())
    assert report["outcome"] == "succeeded"
    assert sorted(unknown["what"] for unknown in report["unknown"]) == sorted(
        f"{count} bytes of stdout of rank {rank}" for rank, count in lost.items()
    )
    first = min(lost, key=lost.__getitem__)  # it may have taken all the room
    shown = distdbg("logs", folder / "run", "--rank", first)
    assert shown.out.startswith("0" * 99) and f"{lost[first]} bytes of rank {first}'s stdout are missing" in shown.err


def test_a_report_that_cannot_be_written_is_still_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = MadeRun(tmp_path)
    made.raises(1, "ValueError", "boom")
    (made.dir.path / "report").write_text("in the way")
    text, report = explain(made.dir)
    assert report.findings[0].ranks == (1,) and "boom" in text and "the report could not be written" in text
    tell_finding("cat", made.dir.report_json)
    assert "--on-finding 'cat' was not called" in capfd.readouterr().err


def test_a_file_system_that_freezes_for_5_s_stalls_no_step(tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    slowest, ready = tmp_path / "slowest", tmp_path / "ready"
    script.write_text(
        f"""
import time
from collections.abc import Iterator
from pathlib import Path
slowest = 0
for step in range(6000):
    began = time.monotonic()
    print(f"step {{step}} " + "x" * 2000, flush=True)
    slowest = max(slowest, time.monotonic() - began)
    time.sleep(0.001)
    if step == 100:
        Path({str(ready)!r}).touch()
Path({str(slowest)!r}).write_text(str(slowest))
"""
    )
    with freezable_file_system(tmp_path / "disk") as disk:
        command = [sys.executable, "-m", "distdbg", "launch", "--run-dir", disk.path / "run", script]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                deadline = time.monotonic() + 60
                while not ready.exists():
                    assert time.monotonic() < deadline and process.poll() is None
                    time.sleep(0.01)
                disk.freeze()
                time.sleep(5)
                # it printed through all of it
                assert process.poll() is None or slowest.exists()
            finally:
                disk.thaw()
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, os.fsdecode(err)
        assert float(slowest.read_text()) < 0.7
        assert [int(n) for n in re.findall(rb"^step (\d+) ", out, re.MULTILINE)] == list(range(6000))


@pytest.mark.parametrize("code", [0, 3])
def test_run_directory_that_becomes_read_only(tmp_path: Path, code: int) -> None:
    """Neither the end of the job nor those of the ranks can be recorded, and neither report makes one up."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\n"
        "open(f'ready-{os.environ[\"RANK\"]}', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        f"sys.exit({code})\n"
    )
    with freezable_file_system(tmp_path / "disk") as disk:
        run = disk.path / "run"
        line = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "--run-dir", str(run), "train.py"]
        launch = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        node = RunDir(run).attempt(1)
        while not all((tmp_path / f"ready-{rank}").exists() and node.rank(rank).folder.exists() for rank in range(2)):
            assert launch.poll() is None
            time.sleep(0.05)
        disk.make_read_only()
        assert launch.stdout is not None
        said = next(line for line in launch.stdout if "cannot be written" in line)  # while the job runs
        (tmp_path / "go").touch()
        shown, _ = launch.communicate(timeout=60)
        later = subprocess.run([*line[:3], "report", str(run)], capture_output=True, text=True)
    assert launch.returncode == (1 if code else 0), shown  # torchrun's
    assert ".jsonl cannot be written: Read-only file system. The job goes on" in said, said
    assert "cannot be written (" in shown and f"no report; exit code {launch.returncode} is torchrun's" in shown, shown
    assert "still running" not in shown + later.stdout and "failed" not in later.stdout, later.stdout
    told = " ".join(later.stdout.split())
    assert "launcher-lost (possible)" in told and "could not be written" in told
