"""`distdbg memory snapshot`: asked while a job runs; files that are whole, and words for what is not there."""

import gzip
import json
import subprocess
import sys
import time

import pytest

from tests.made_run import MadeRun

TRAIN = """
import pathlib, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(500, 100))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = pathlib.Path(sys.argv[1])
flag = torch.zeros(1)
while not flag:
    optimizer.zero_grad(set_to_none=False)  # at any moment there are gradients
    model(torch.ones(4, 500)).sum().backward()
    optimizer.step()
    (folder / f"trains{dist.get_rank()}").touch()
    time.sleep(0.02)
    flag.fill_((folder / "stop").exists())
    dist.broadcast(flag, 0)
del model, optimizer
dist.destroy_process_group()
"""


def wait_for(what, seconds=90):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_running_job_gives_its_snapshots_and_goes_on(distdbg, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    command = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "train.py", str(tmp_path)]
    said = tmp_path / "said"
    with said.open("w") as file:
        job = subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file)
    try:
        wait_for(lambda: all((tmp_path / f"trains{rank}").exists() for rank in (0, 1)))
        strange = distdbg("memory", "snapshot", "--ranks", "0,7")
        assert strange.code == 2 and "no living rank 7" in strange.err, strange
        one = distdbg("memory", "snapshot", "--ranks", "1")
        every = distdbg("memory", "snapshot")
    finally:
        (tmp_path / "stop").touch()
        code = job.wait(timeout=90)
    assert code == 0, said.read_text()
    assert one.code == 0 and every.code == 0, f"{one}{every}"
    assert [("00001" in line) for line in one.out.split()] == [True]
    assert len(every.out.split()) == 2 and len({*one.out.split(), *every.out.split()}) == 3
    assert "no CUDA here" in one.err
    for path in every.out.split():
        with gzip.open(path) as file:
            found = json.load(file)
        (weight,) = [g for g in found["groups"] if g["name"] == "module.weight"]
        assert weight["bytes"] == {"cpu": 500 * 100 * 4} and weight["kind"] == "parameter"
        assert any(g["kind"] == "gradient" for g in found["groups"]) and found["why"] == "asked"


def test_a_run_that_has_ended_gives_none(distdbg, tmp_path):
    made = MadeRun(tmp_path, ranks=2, nodes=1)
    for rank in (0, 1):
        made.exits(rank, 0)
    done = distdbg("memory", "snapshot", str(made.dir.path))
    assert done.code == 3 and "does not run" in done.err, done
    assert distdbg("memory", "snapshot", str(made.dir.path), "--ranks", "3-1").code == 2


@pytest.mark.slow
def test_ranks_that_are_silent_are_named(distdbg, tmp_path):
    made = MadeRun(tmp_path, ranks=2, nodes=1, started=time.time())
    made.dir.control.touch()
    done = distdbg("memory", "snapshot", str(made.dir.path), "--ranks", "1", "--within", "1")
    assert done.code == 6 and "rank 1 wrote no snapshot: it did not answer within 1 s" in done.err, done
    assert json.loads(made.dir.control.read_text())["ranks"] == [1]
