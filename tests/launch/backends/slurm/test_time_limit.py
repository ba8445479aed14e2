"""What a job hears of its time limit from real Slurm, whose shortest is a minute: the cases wait two at a time."""

import json
import subprocess

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.heads import DISTDBG, head_of
from tests.cluster.slurm import Slurm

#: Runs for ever, unless rank 0 sees its signal or file.
LOOKS = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
print("begun", flush=True)
while True:
    wanted = torch.tensor([float(os.path.exists(os.environ.get("DISTDBG_CHECKPOINT_FILE", "")))])
    dist.broadcast(wanted, 0)
    if wanted:
        break
    time.sleep(0.05)
dist.destroy_process_group()
"""


@pytest.fixture
def bed():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(620)
@pytest.mark.xdist_group("slurm-faults")
def test_ranks_are_warned_and_ended_in_time(bed):
    launch = (*DISTDBG, "launch", "--nodes", 2, "--nproc-per-node", 1, "--grace", 3)
    submits = (*launch, "--on", "slurm", "--time", 1, "--signal-before", 30, "--on-preempt")
    cases = {
        "signal": (*submits, "signal", "train.py", 9999),
        "checkpoint-file": (*submits, "checkpoint-file", "looks.py"),
        "nothing": (*submits, "nothing", "looks.py"),
        "own": ("salloc", "-Q", "-N2", "-n2", "--time=1", *launch, "looks.py"),
    }
    heads, following, said = {}, {}, {}
    for pair in (("signal", "checkpoint-file"), ("nothing", "own")):  # four at once do not load torch in 30 s here
        for name in pair:
            heads[name] = head = head_of(bed, name)
            (head.folder / "looks.py").write_text(LOOKS)
            following[name] = bed.popen("head", *head.command(*cases[name]), env=head.env, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True)  # fmt: skip
        said |= {name: following[name].communicate(timeout=300)[0] for name in pair}
    codes = {name: process.returncode for name, process in following.items()}
    reports = {name: json.loads(head.newest.report_json.read_text()) for name, head in heads.items()}
    assert codes == {"signal": 0, "checkpoint-file": 0, "nothing": 143, "own": 143}, said
    assert (heads["signal"].folder / "ckpt").exists()
    outcomes = {name: report["outcome"] for name, report in reports.items()}
    assert outcomes == {"signal": "succeeded", "checkpoint-file": "succeeded", "nothing": "cancelled",
                        "own": "cancelled"}, said  # fmt: skip
    assert "time was up" in said["nothing"], said["nothing"]
    left = [line for host in bed.hosts.values() for line in host.processes().values() if "looks.py" in line]
    assert not left
