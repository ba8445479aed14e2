"""What two hosts under real Slurm make of each fault: who is named, how soon, with which code, and what is left."""

import json
import os
import re
import signal
import sys

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.jobs import TRAIN, jobs, nothing_is_left
from tests.cluster.slurm import Slurm

# They wait for most of their time: one worker of pytest-xdist runs them, while others compute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("slurm-faults")]
#: Where what is asserted is of the nodes, and not of the ranks of one.
ONE_RANK_A_NODE = ("--nproc-per-node", "1")
#: Seconds from the fault to its name on the terminal, and to the end: on a quiet machine 17 and 22.
NAMED_WITHIN_S, ENDED_WITHIN_S = 30, 60


@pytest.fixture
def bed():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as made:
        yield made


@pytest.fixture
def launch(bed):
    with jobs(bed) as start:
        yield start


def test_two_jobs_at_once_train(bed, launch):
    """On the same two nodes: each has its own port, folders and ranks."""
    both = [launch(steps=20), launch(steps=20)]
    for job in both:
        assert job.ends(120) == 0, job.said()
        assert job.report()["outcome"] == "succeeded"
        assert all(f"{rank} node{1 + rank // 2} {rank // 2}" in job.said() for rank in range(4))
        assert "disk-low" not in job.said()
        topology = job.run.read_job()["topology"]
        assert (topology["on"], topology["hosts"], topology["world_size"]) == ("slurm", ["node1", "node2"], 4)
    nothing_is_left(bed)


def test_a_rank_of_the_second_node_raises(bed, launch):
    bed.run("node2", "mount", "-o", "remount,size=8m", "/dev/shm")
    job = launch(env={"RAISES": "3"})
    assert job.ends(120) == 1, job.said()
    (line,) = (line for line in job.said().splitlines() if "[disk-low]" in line)
    assert "/dev/shm on node2 has" in line  # before it trained
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
    report = job.report()
    first = report["findings"][0]
    assert (first["id"], first["ranks"], first["nodes"], report["exit_code"]) == (finding, [2, 3], ["node2"], 76)
    assert job.run.attempt(1).dumps(), "the side that lives captures what it has"


def test_a_killed_agent(bed, launch):
    job = launch(*ONE_RANK_A_NODE)
    job.trains(ranks=2)
    os.kill(job.agent("node2"), signal.SIGKILL)
    assert job.ends(ENDED_WITHIN_S) == 76, job.said()
    first = job.report()["findings"][0]
    assert (first["id"], first["ranks"], first["nodes"]) == ("node-lost", [1], ["node2"])
    assert "killed by SIGKILL" in first["summary"]
    nothing_is_left(bed)


def test_a_stopped_rank_and_a_stopped_agent_cost_a_healthy_job_nothing(bed, launch):
    job = launch(steps=800)
    job.trains()
    rank = max(bed["node2"].pids_of("boot.py train.py", but="agent/torchrun.py"))
    for number, says in ((signal.SIGSTOP, "was stopped (SIGSTOP, Ctrl-Z)"), (signal.SIGCONT, "goes on")):
        os.kill(rank, number)
        job.waits_for(says, NAMED_WITHIN_S)
    assert "rank 3 goes on" in job.said()
    agent = job.agent("node2")
    os.kill(agent, signal.SIGSTOP)
    job.waits_for("its ranks are left alone", NAMED_WITHIN_S)
    os.kill(agent, signal.SIGCONT)
    assert job.ends(180) == 0, job.said()
    nothing_is_left(bed)


def test_a_cancel_ends_both_nodes(bed, launch):
    job = launch(*ONE_RANK_A_NODE)
    job.trains(ranks=2)
    launcher = next(
        pid for pid, line in bed["head"].processes().items() if "-m distdbg launch" in line and "salloc" not in line
    )
    os.kill(launcher, signal.SIGINT)
    assert job.ends(60) == 130, job.said()
    assert job.report()["outcome"] == "cancelled"
    nothing_is_left(bed)


def test_a_killed_launcher_leaves_nothing(bed, launch):
    job = launch(*ONE_RANK_A_NODE)
    job.trains(ranks=2)
    launcher = next(
        pid for pid, line in bed["head"].processes().items() if "-m distdbg launch" in line and "salloc" not in line
    )
    os.kill(launcher, signal.SIGKILL)
    job.ends(60)
    nothing_is_left(bed)


def test_a_node_that_cannot_be_reached_at_the_start_is_named(bed, launch):
    """First by the other node alone, then by nobody: it was there when the job got it."""
    held = ("salloc", "-Q", "-N2", "sh", "-c", 'echo allocated; until [ -e go ]; do sleep 0.1; done; exec "$@"', "sh")

    def begins(within):
        job.waits_for("allocated", 60)
        (job.folder / "go").touch()
        assert job.ends(within) == 2, job.said()
        nothing_is_left(bed)

    job = launch(inside=held)
    bed.run("node2", "ip", "route", "add", "unreachable", bed["node1"].address)
    begins(60)
    assert re.search(r"node2 cannot reach node1 on port \d+ \(10\S+: No route to host\)", job.said()), job.said()
    bed.run("node2", "ip", "route", "del", "unreachable", bed["node1"].address)

    job = launch(inside=held)
    job.waits_for("allocated", 60)
    bed.blackhole("node2")
    begins(60)
    assert "before the agents were up on node2: " in job.said(), job.said()
    assert "Task launch for StepId" in job.said() and "failed on node node2" in job.said(), job.said()


def test_a_run_directory_that_only_one_node_sees(bed, launch):
    job = launch("--run-dir", "/tmp/own-run")
    assert job.ends(120) == 2
    assert "the run directory is not seen on node1, node2" in job.said()
    nothing_is_left(bed)


def test_inside_a_batch_script(bed, launch):
    """The launcher is on the first node then."""
    submit = 'printf "#!/bin/sh\\nexec %s\\n" "$*" > j; sbatch -Q -N2 -o out ./j'
    job = launch(steps=20, inside=("sh", "-c", submit, "sh"))
    job.waits_for("exit code 0: all 4 ranks", 120)
    assert "3 node2 1" in job.said()
    nothing_is_left(bed)


HANGS = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(10):
    dist.all_reduce(torch.ones(1))
open(f"{os.environ['STEPS']}/{dist.get_rank()}", "w").close()
if dist.get_rank() == 3:
    while True:
        time.sleep(1)
dist.barrier()
"""


def test_a_hang_is_found_dumped_on_request_and_cancelled_from_another_host(bed, launch):
    job = launch("--hang-timeout", "4", train=HANGS)
    job.waits_for("stuck-in-python", 90)  # the launch has explained it by itself
    first = job.report()["findings"][0]
    assert (first["ranks"], first["nodes"]) == ([3], ["node2"]), job.said()
    command = [sys.executable, "-m", "distdbg"]
    asked = bed.run("head", *command, "hang-dump", "--json", str(job.run.path), timeout=100)
    assert asked.returncode in (0, 10) and json.loads(asked.stdout)["schema"] == "distdbg.report/1", asked.stderr
    manifests = [json.loads(path.read_text()) for path in job.run.path.glob("attempts/1/dumps/*-asked/manifest.json")]
    assert [m["ranks"] for m in manifests] == [{str(rank): "collected" for rank in range(4)}]
    assert bed.run("head", *command, "cancel", str(job.run.path)).returncode == 0
    assert job.ends(60) != 0, job.said()
    nothing_is_left(bed)


RAISES_ONCE = TRAIN.replace("RAISES", "NOBODY").replace(
    "for step",
    """
first = os.environ["STEPS"] + "/first"
if dist.get_rank() == 1 and not os.path.exists(first):
    open(first, "w").close()
    raise RuntimeError("once")
for step""",
    1,
)


def test_a_restart_over_two_nodes(bed, launch):
    job = launch(*ONE_RANK_A_NODE, "--max-restarts", "1", steps=10, train=RAISES_ONCE)
    assert job.ends(180) == 0, job.said()
    assert [attempt.number for attempt in job.run.attempts()] == [1, 2]
    nothing_is_left(bed)


def test_without_capture_the_ranks_have_the_terminal(bed, launch):
    job = launch("--no-capture", steps=5)
    assert job.ends(120) == 0, job.said()
    assert all(f"{rank} node{1 + rank // 2} {rank // 2}" in job.said() for rank in range(4)), job.said()
    assert job.report()["outcome"] == "succeeded"
    nothing_is_left(bed)


def test_a_dry_run_pasted_into_a_shell_trains(bed, launch):
    pasted = ("salloc", "-Q", "-N2", "sh", "-c", '"$@" > pasted; cat pasted; exec bash pasted', "sh")
    words = ("--dry-run", "--name", "it's $one")
    job = launch(*words, steps=10, inside=pasted)
    assert job.ends(120) == 0, job.said()
    assert all(f"{rank} node{1 + rank // 2} {rank // 2}" in job.said() for rank in range(4)), job.said()
    nothing_is_left(bed)
