"""`distdbg launch --profile` and `distdbg profile`: real ranks, their traces, one file of them all."""

import gzip
import json
import subprocess
import sys

import pytest

from distdbg.cli.answer import ProgressBar
from distdbg.collect.runs.run_profiles import sets_of
from distdbg.evidence.trace.marks import step_of
from distdbg.rundir import RUNS_FOLDER, RunDir, list_runs
from tests.cli.test_memory_snapshot import wait_for
from tests.collect.files.test_profile_merging import trace
from tests.conftest import run_command
from tests.made_run import MadeRun

TRAIN = """
import pathlib, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(50, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(40, 50)), batch_size=4)
stop, done = pathlib.Path(sys.argv[1]), torch.zeros(1)
while not done:
    for (x,) in loader:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
    done.fill_(stop.exists())
    dist.broadcast(done, 0)
    time.sleep(0.01)
    stop.with_name(f"trains{dist.get_rank()}").touch()
print(float(loss.detach()))
del model, optimizer, loss
dist.destroy_process_group()
"""


def distdbg(folder, *words):
    return run_command([sys.executable, "-m", "distdbg", *words], folder)


def events(path):
    with gzip.open(path) as file:
        return json.load(file)["traceEvents"]


def crossing(found):
    """Slices that begin within another one of their track, and end after it."""
    tracks = {}
    for event in found:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks.setdefault((event["pid"], event["tid"]), []).append(
                (begin, -round(event["dur"] * 1000), event["name"])
            )
    bad = []
    for slices in tracks.values():
        ends = []
        for begin, lasts, name in sorted(slices):
            while ends and ends[-1] <= begin:
                ends.pop()
            if ends and begin - lasts > ends[-1]:
                bad.append(name)
            else:
                ends.append(begin - lasts)
    return bad


@pytest.mark.slow
def test_steps_of_all_ranks_come_in_one_file(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "stop").touch()
    words = ["launch", "--nodes", "2", "--nproc-per-node", "2", "--profile", "6:8", "train.py", "stop"]
    done = distdbg(tmp_path, *words)
    assert done.code == 0 and "profile of steps" not in done.err, done
    assert "mean of the middle half of the steps" in done.err and "USDT" not in done.err, done
    assert "merged-steps-6-8.json.gz, for ui.perfetto.dev\n  one host, one clock" in done.err, done
    attempt = done.run.attempt(1)
    assert [[path.name for path in files.profiles()] for files in attempt.ranks().values()] == [
        ["steps-6-8.json.gz"]
    ] * 4
    shown = distdbg(tmp_path, "profile")
    assert shown.code in (0, 10) and "steps 6-8 of ranks 0-3" in shown.out, shown
    merged = events(attempt.merged_profile("steps-6-8.json.gz"))
    steps = {(e["pid"], step_of(e["name"])): e for e in merged if step_of(e["name"])}
    assert sorted(steps) == [((rank + 1) * 1000, step) for rank in range(4) for step in (6, 7, 8)]
    for step in (6, 7, 8):  # DDP ends no step before all have begun it
        all_ranks = [steps[(rank + 1) * 1000, step] for rank in range(4)]
        assert max(e["ts"] for e in all_ranks) < min(e["ts"] + e["dur"] for e in all_ranks)
    names = {e["args"]["name"] for e in merged if e["name"] == "process_name"}
    assert {name.partition(" on ")[0] for name in names} == {f"rank {rank}" for rank in range(4)}
    ids = [(e["id"], e["ph"], e["cat"]) for e in merged if e["ph"] in "sf"]
    assert ids and len(set(ids)) == len(ids), "an arrow must not lead into another rank"
    assert crossing(merged) == [], "Perfetto drops one of two slices that cross each other"
    again = distdbg(tmp_path, "profile", "--json")
    assert json.loads(again.out)["schema"] == "distdbg.report/1" and "merged-steps-6-8" in again.err


@pytest.mark.slow
def test_a_running_job_gives_its_next_steps_and_goes_on(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    words = ["launch", "--nproc-per-node", "2", "--profile", "1:2", "--profile-ranks", "1", "train.py", "stop"]
    job = subprocess.Popen([sys.executable, "-m", "distdbg", *words], cwd=tmp_path, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        wait_for(lambda: all((tmp_path / f"trains{rank}").exists() for rank in (0, 1)))
        strange = distdbg(tmp_path, "profile", "--ranks", "0,7")
        both = distdbg(tmp_path, "profile", "--steps", "3")
    finally:
        (tmp_path / "stop").touch()
        code = job.wait(timeout=90)
    assert code == 0
    assert strange.code == 2 and "no living rank 7" in strange.err, strange
    assert both.code in (0, 10) and "of ranks 0-1: " in both.out, both
    (run,) = list_runs(tmp_path / RUNS_FOLDER)
    zero, one = (files.profiles() for files in run.attempt(1).ranks().values())
    assert len(zero) == 1 and len(one) == 2 and one[0].name == "steps-1-2.json.gz", (zero, one)
    begins = []
    for path in (zero[0], one[1]):
        steps = [step_of(e["name"]) for e in events(path) if step_of(e["name"])]
        assert len(steps) == 3 and steps[0] > 10
        begins.append(steps[0])
    assert abs(begins[0] - begins[1]) <= 1, "both got the same first step; a rank that is past it takes its next one"


def test_a_run_without_profiles_says_so(tmp_path):
    made = MadeRun(tmp_path, ranks=2, nodes=1)
    for rank in (0, 1):
        made.exits(rank, 0)
    done = distdbg(tmp_path, "profile", str(made.dir.path))
    assert done.code == 3 and "nobody asked for any" in done.err, done
    assert distdbg(tmp_path, "profile", str(made.dir.path), "--steps", "3").code == 3


def test_ranks_of_which_nothing_has_come_for_long_are_not_asked(tmp_path):
    """An agent that was killed, or the copy of a directory: no end is written."""
    made = MadeRun(tmp_path, ranks=2, nodes=1)
    done = distdbg(tmp_path, "profile", str(made.dir.path))
    assert done.code == 3 and "nobody asked for any" in done.err, done
    assert not made.dir.control.exists()


def test_how_far_a_merge_is_stands_on_a_terminal_and_nowhere_else(tmp_path, monkeypatch, capsys):
    attempt = RunDir(tmp_path).attempt(1)
    for rank in (0, 1):
        attempt.rank(rank).profile.mkdir(parents=True)
        trace(attempt.rank(rank).profile / "steps-4-5.json.gz", rank, count=2)
    (found,) = sets_of(attempt)
    found.merge(ProgressBar(after_s=0.0))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    say = ProgressBar(after_s=0.0)
    found.merge(say)
    say("")
    shown = capsys.readouterr().err
    assert "distdbg: merging rank 0, 1 of 2" in shown and "distdbg: merging rank 1, 2 of 2" in shown


def test_words_that_cannot_be_meant_are_named(tmp_path):
    made = MadeRun(tmp_path, ranks=1, nodes=1)
    (tmp_path / "trace.json").write_text("[]")
    assert distdbg(tmp_path, "profile", "trace.json", "--steps", "3").code == 2
    done = distdbg(tmp_path, "profile", "trace.json", "nothing.json")
    assert done.code == 2 and "'nothing.json' is no file" in done.err, done
    (tmp_path / "traces").mkdir()
    assert distdbg(tmp_path, "profile", "traces").code == 3
    assert distdbg(tmp_path, "profile", str(made.dir.path), "--ranks", "3-1").code == 2


def test_a_trace_that_is_not_there_is_no_run_that_is_not_there(tmp_path):
    done = distdbg(tmp_path, "profile", "nothing.json.gz")
    assert done.code == 2 and "'nothing.json.gz' is no file" in done.err, done
