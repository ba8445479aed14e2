"""What two hosts under real Slurm make of each fault: who is named, how soon, with which code, and what is left."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from distdbg.rundir import RUNS_FOLDER, list_runs
from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
#: Seconds from the fault to its name on the terminal, and to the end: on a quiet machine 17 and 22.
NAMED_WITHIN_S, ENDED_WITHIN_S = 30, 60
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    if step == 5 and dist.get_rank() == int(os.environ.get("RAISES", "-1")):
        raise ValueError("a value that nobody expected")
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
    if step == 5:
        open(f"{os.environ['STEPS']}/{dist.get_rank()}", "w").close()
print(dist.get_rank(), os.uname().nodename, os.environ["GROUP_RANK"])
dist.destroy_process_group()
"""


@pytest.fixture
def bed():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as made:
        yield made


@dataclass
class Job:
    bed: Bed
    folder: Path
    process: subprocess.Popen

    @property
    def run(self):
        return list_runs(self.folder / RUNS_FOLDER)[-1]

    def trains(self, ranks=4, within=120):
        """Returns when every rank has made some steps."""
        deadline = time.monotonic() + within
        while len(os.listdir(self.folder / "steps")) < ranks:
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def said(self):
        return (self.folder / "out").read_text()

    def waits_for(self, text, within):
        deadline = time.monotonic() + within
        while text not in self.said():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def ends(self, within):
        return self.process.wait(within)

    def report(self):
        return json.loads(self.run.report_json.read_text())

    def events(self):
        return [json.loads(line) for line in self.run.events.read_text().splitlines()]

    def agents(self, host):
        """(keeper, agent): the machine's pids."""
        pids = [
            pid for pid, line in self.bed[host].processes().items() if "agent.py --far" in line and "srun" not in line
        ]
        return tuple(sorted(pids))


@pytest.fixture
def launch(bed):
    begun = []

    def start(*args, steps=100_000, env=None, on="head", allocate=("salloc", "-Q", "-N2"), train=TRAIN):
        folder = bed.shared / f"job{len(begun)}"
        (folder / "steps").mkdir(parents=True)
        (folder / "train.py").write_text(train)
        words = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "--show-ranks", "all", *args]
        out = (folder / "out").open("wb")
        line = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *allocate, *words, "train.py", str(steps)]
        variables = {"STEPS": str(folder / "steps"), "PYTHONPATH": os.getcwd(), **(env or {})}
        process = bed.popen(on, *line, env=variables, stdout=out, stderr=out)
        begun.append(Job(bed, folder, process))
        return begun[-1]

    yield start
    for job in begun:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()


def nothing_is_left(bed, but=()):
    """No process of a job, on any host that lives."""
    deadline = time.monotonic() + 20
    while left := [
        line
        for name, host in bed.hosts.items()
        if host.alive and name not in but
        for line in host.processes().values()
        if "train.py" in line or "agent.py" in line
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_it_trains(bed, launch):
    job = launch(steps=20)
    assert job.ends(120) == 0, job.said()
    assert all(f"{rank} node{1 + rank // 2} {rank // 2}" in job.said() for rank in range(4))
    assert job.report()["outcome"] == "succeeded"
    topology = job.run.read_job()["topology"]
    assert (topology["on"], topology["hosts"], topology["world_size"]) == ("slurm", ["node1", "node2"], 4)
    nothing_is_left(bed)


def test_a_rank_of_the_second_node_raises(bed, launch):
    job = launch(env={"RAISES": "3"})
    assert job.ends(120) == 1, job.said()
    first = job.report()["findings"][0]
    assert (first["id"], first["ranks"], first["nodes"]) == ("rank-exception", [3], ["node2"])
    nothing_is_left(bed)


@pytest.mark.parametrize(
    ("fault", "finding"), [("cut", "network-cut"), ("blackhole", "network-cut"), ("kill", "node-lost")]
)
def test_a_node_that_is_gone(bed, launch, fault, finding):
    job = launch()
    job.trains()
    getattr(bed, fault)("node2")
    job.waits_for("node 1 (node2) is lost", NAMED_WITHIN_S)
    assert job.ends(ENDED_WITHIN_S) == 76, job.said()
    nothing_is_left(bed)  # the side that was cut off has ended its ranks as well
    found = subprocess.run(
        [sys.executable, "-m", "distdbg", "report", "--json", str(job.run.path)], capture_output=True, text=True
    )
    report = json.loads(found.stdout)
    first = report["findings"][0]
    assert (first["id"], first["ranks"], first["nodes"], report["exit_code"]) == (finding, [2, 3], ["node2"], 76)
    assert job.run.attempt(1).dumps(), "the side that lives captures what it has"


def test_a_killed_agent(bed, launch):
    job = launch()
    job.trains()
    os.kill(job.agents("node2")[1], signal.SIGKILL)
    assert job.ends(ENDED_WITHIN_S) == 76, job.said()
    first = job.report()["findings"][0]
    assert (first["id"], first["ranks"], first["nodes"]) == ("node-lost", [2, 3], ["node2"])
    assert "killed by SIGKILL" in first["summary"]
    nothing_is_left(bed)


def test_a_stopped_agent_costs_a_healthy_job_nothing(bed, launch):
    job = launch(steps=1500)
    job.trains()
    agent = job.agents("node2")[1]
    os.kill(agent, signal.SIGSTOP)
    time.sleep(20)  # longer than the silence that makes the launcher ask
    assert "is lost" not in job.said()
    os.kill(agent, signal.SIGCONT)
    assert job.ends(180) == 0, job.said()
    nothing_is_left(bed)


def test_a_cancel_ends_both_nodes(bed, launch):
    job = launch()
    job.trains()
    launcher = next(
        pid for pid, line in bed["head"].processes().items() if "-m distdbg launch" in line and "salloc" not in line
    )
    os.kill(launcher, signal.SIGINT)
    assert job.ends(60) == 130, job.said()
    assert job.report()["outcome"] == "cancelled"
    nothing_is_left(bed)


def test_a_killed_launcher_leaves_nothing(bed, launch):
    job = launch()
    job.trains()
    launcher = next(
        pid for pid, line in bed["head"].processes().items() if "-m distdbg launch" in line and "salloc" not in line
    )
    os.kill(launcher, signal.SIGKILL)
    job.ends(60)
    nothing_is_left(bed)


def test_a_run_directory_that_only_one_node_sees(bed, launch):
    job = launch("--run-dir", "/tmp/own-run")
    assert job.ends(120) == 2
    assert "the run directory is not seen on node1, node2" in job.said()
    nothing_is_left(bed)


def test_inside_a_batch_script(bed, launch):
    """The launcher is on the first node then."""
    job = launch(
        steps=20, allocate=("sh", "-c", 'printf "#!/bin/sh\\nexec %s\\n" "$*" > j; sbatch -Q -N2 -o out ./j', "x")
    )
    job.waits_for("exit code 0: all 4 ranks", 120)
    assert "3 node2 1" in job.said()
    nothing_is_left(bed)
