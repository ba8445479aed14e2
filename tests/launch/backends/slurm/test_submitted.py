"""Jobs that are submitted to real Slurm from the bed's head: followed, cancelled, requeued, looked at."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from distdbg.launch.backends.slurm import commands
from distdbg.rundir import list_runs
from tests.cluster.bed import USER, Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.heads import head_of
from tests.cluster.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bed")]


@pytest.fixture
def head(slurm_bed, tmp_path_factory):
    yield head_of(slurm_bed, tmp_path_factory.mktemp("job").name)
    slurm_bed.run("head", "scancel", "--full", "--user=root")
    deadline = time.monotonic() + 60
    while slurm_bed.run("head", "squeue", "-h").stdout and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.fixture
def full(head):
    """Both nodes are taken."""
    head.run("sbatch", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1000")
    head.until(lambda: " R " in head.run("squeue").stdout)


def test_submitted_followed_and_failed_on_the_second_node(head):
    done = head.distdbg(
        "launch", "--nodes", 2, "--nproc-per-node", 1, "--grace", 2, "--show-ranks", "all", "train.py", 3, 7
    )
    assert done.returncode == 7, done.stderr
    assert "2 nodes are asked for and sbatch is here: submitted to Slurm" in done.stderr
    assert re.search(r"Slurm job \d+ runs on node\[1-2\]", done.stderr)
    assert set(done.stdout.splitlines()) == {"[rank 0] from 0 on node1", "[rank 1] from 0 on node2"}
    assert done.stderr.count("rank-exception") == 1 and "exit code 7: rank 1" in done.stderr
    again = head.distdbg("attach")
    assert again.returncode == 7 and "has ended: failed, exit code 7" in again.stderr


def test_a_job_that_waits_says_why_is_left_attached_to_and_cancelled(head, full):
    done = head.distdbg("launch", "--on", "slurm", "--detach", "--nodes", 2, "train.py", 3)
    assert done.returncode == 0 and done.stdout.split("\t")[0] == head.newest.id
    number = int(done.stdout.split("\t")[1])
    assert "submitted" in head.distdbg("runs").stdout
    attached = head.popen("attach", stderr=subprocess.PIPE, text=True)
    assert f"Slurm job {number} waits" in attached.stderr.readline()
    cancelled = head.distdbg("cancel")
    assert cancelled.returncode == 0 and "ended: cancelled, exit code 143" in cancelled.stdout
    _, err = attached.communicate(timeout=60)
    assert attached.returncode == 143, err
    assert "CANCELLED" in head.run("squeue", "-h", "-t", "all", "-j", str(number), "-o", "%T").stdout


def test_interrupted_without_a_terminal_the_job_goes_on(head):
    following = head.popen("launch", "--on", "slurm", "--nproc-per-node", 1, "train.py", 2000, stderr=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert following.stdout.readline() == "from 0 on node1\n"
    head.interrupt()
    _, err = following.communicate(timeout=30)
    assert following.returncode == 76 and "is left to itself: `distdbg attach" in err
    done = head.distdbg("cancel")
    assert done.returncode == 0 and "ended: cancelled" in done.stdout, done.stderr
    assert head.newest.read_job()["topology"]["on"] == "slurm"


def test_ctrl_c_at_a_terminal_asks_and_cancels(head, full):
    ours, theirs = pty.openpty()
    following = head.popen("launch", "--on", "slurm", "train.py", 3, stdin=theirs, stdout=theirs, stderr=theirs,
                           start_new_session=True)  # fmt: skip
    os.close(theirs)
    seen = read_until(ours, "waits")
    head.interrupt()
    read_until(ours, "[d]etach and let it run, [c]ancel it")
    os.write(ours, b"c\n")
    seen = read_until(ours, "ended before any rank was started")
    assert "asked it to end" in seen
    assert following.wait(30) == 143
    os.close(ours)


def test_window_that_is_closed_leaves_a_job_that_waits_to_itself(head, full):
    ours, theirs = pty.openpty()
    following = head.popen("launch", "--on", "slurm", "train.py", 3, stdin=theirs, stdout=theirs, stderr=theirs,
                           start_new_session=True)  # fmt: skip
    os.close(theirs)
    read_until(ours, "waits")
    os.close(ours)
    head.interrupt(signal.SIGHUP)
    assert following.wait(30) == 76
    assert "submitted" in head.distdbg("runs").stdout


def read_until(descriptor, text, seconds=60):
    seen = ""
    deadline = time.monotonic() + seconds
    while text not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([descriptor], [], [], 0.2)[0]:
            seen += os.read(descriptor, 1 << 16).decode(errors="replace")
    return seen


#: As long a requeued job waits, since a step of its last start could begin so late; two minutes, if this is not said.
REQUEUES_SOON = "AuthInfo=cred_expire=40"
#: Cheap jobs make way for urgent ones within a minute; they hear of it by the signal that they asked for, or not.
PREEMPTS = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{signal}
PartitionName=cheap Nodes=ALL PriorityTier=1 GraceTime=60 PreemptMode=REQUEUE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""


@contextmanager
def preempted(signal):
    """A user's job that has made way: (their head, who follows it), with the job in the queue again."""
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm(more=PREEMPTS.format(signal=signal))) as bed:
        head = head_of(bed, "job", user=USER)
        following = head.popen("launch", "--on", "slurm", "--partition", "cheap", "--nodes", 2, "--nproc-per-node", 1,
                               "--grace", 5, "--max-requeues", 1, "train.py", 1100, stderr=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert following.stdout.readline() == "from 0 on node1\n", following.stderr.read()
        head.run("sbatch", "-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")
        head.until(lambda: '"requeued"' in head.newest.events.read_text())
        yield head, following


@pytest.mark.timeout(420)
def test_a_users_job_is_preempted_and_runs_on_as_its_next_attempt():
    """Slurm sends the signal that the batch script asks for, as before the time limit."""
    with preempted(f"SlurmctldParameters=preempt_send_user_signal\n{REQUEUES_SOON}") as (head, following):
        # asked to start at once, Slurm has been seen to end a requeued job as failed
        out, err = following.communicate(timeout=280)
        assert following.returncode == 0, err
        assert re.fullmatch(r"from 10\d\d on node1\n", out), out
        assert err.count("goes back into the queue: Slurm warned it of its end") == 1
        assert [attempt.number for attempt in head.newest.attempts()] == [1, 2]
        assert json.loads(head.newest.report_json.read_text())["outcome"] == "succeeded"
        assert {path.stat().st_uid for path in head.newest.path.rglob("*")} == {USER}


def test_a_job_that_makes_way_without_a_warning_is_requeued_too():
    """Its ranks have got SIGTERM."""
    with preempted("") as (head, following):
        cancelled = head.distdbg("cancel")
        assert cancelled.returncode == 0, cancelled.stderr
        _, err = following.communicate(timeout=60)
        assert err.count("goes back into the queue: it made way for another job") == 1


def end_slurm_and_agent(bed, name):
    """End what runs a job on a host. The host answers."""
    for words in ("slurmd", "slurmstepd", "agent.py --remote"):
        for pid in bed[name].pids_of(words, but="srun"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def losing_node2(more="", lose=Bed.kill):
    """(the head, who follows the job there): a node has died under it."""
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=3, slurm=Slurm(kill_wait=60, more=more)) as bed:
        head = head_of(bed, "job")
        following = head.popen("launch", "--on", "slurm", "--nodes", 2, "--nproc-per-node", 1, "--grace", 3,
                               "--max-requeues", 1, "--exclude-culprit", "train.py", 4000, stderr=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert following.stdout.readline() == "from 0 on node1\n"
        lose(bed, "node2")
        yield head, following


@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    ("lose", "because"),
    [(Bed.kill, "does not answer either ("), (end_slurm_and_agent, "answers, and the agent has ended (")],
)
def test_a_node_that_is_lost_is_left_out_of_the_next_attempt(lose, because):
    with losing_node2(REQUEUES_SOON, lose) as (head, following):
        head.until(lambda: '"requeued"' in head.newest.events.read_text())
        (head.folder / "ckpt").write_text("3990")
        _, err = following.communicate(timeout=280)
        assert following.returncode == 0, err
        # the machine can be so slow that Slurm is first, see below
        assert "node-lost" in err and re.search("(the verdict names node2|or by a person), left out: node2", err)
        assert f"Slurm job {head.newest.slurm_job} runs on node[1,3]" in err
        first = json.loads(head.distdbg("report", "--attempt", 1, "--json").stdout)
        lost = first["findings"][0]
        assert (lost["id"], lost["ranks"], lost["nodes"]) == ("node-lost", [1], ["node2"])
        if "the verdict names node2" in err:
            assert (first["outcome"], first["exit_code"], first["run"]["cancelled_by"]) == ("failed", 76, None)
            assert f"Its host {because}10." in lost["cause"]
        last = json.loads(head.distdbg("report", "--json").stdout)
        assert (last["outcome"], last["exit_code"], last["run"]["nodes"]) == ("succeeded", 0, ["node1", "node3"])
        restarted = [(f["id"], f["nodes"], lost["summary"] in f["summary"]) for f in last["findings"]]
        assert restarted == [("restarted", ["node2"], True)]


def test_where_slurm_is_the_first_to_see_that_a_node_is_gone():
    """It ends the job and requeues it by itself: who follows it waits, and nothing is requeued twice."""
    with losing_node2() as (head, following):
        head.run("scontrol", "update", "NodeName=node2", "State=DOWN", "Reason=dead")
        head.until(lambda: '"requeued"' in head.newest.events.read_text())
        job = str(head.newest.slurm_job)
        head.until(lambda: "ExcNodeList=node2" in head.run("scontrol", "show", "job", job).stdout)
        head.until(lambda: " PD " in head.run("squeue").stdout)
        cancelled = head.distdbg("cancel")
        assert cancelled.returncode == 0, cancelled.stderr
        _, err = following.communicate(timeout=60)
        assert "node 1 (node2) was lost: Slurm found that it had failed, and ended the job" in err
        assert "the job is back in the queue already, by Slurm or by a person, left out: node2" in err
        assert following.returncode == 143


def test_what_cannot_be_is_said_before_anything_is_left(head):
    for words, says in {
        ("--nodes", "9"): "9 nodes are asked for, and Slurm's partition 'main' has 2",
        ("--partition", "nope"): "Slurm has no partition 'nope'",
        ("--time", "soon"): "no time that Slurm takes",
        ("--gpus-per-node", "8"): "no node has the GPUs that were asked for",
        ("--constraint", "x"): "no node has what --constraint asks for",
        ("--slurm", "frobnicate=1"): "sbatch has no option",
        ("--template", "nowhere"): "the template 'nowhere' cannot be read",
    }.items():
        done = head.distdbg("launch", "--on", "slurm", *words, "train.py", 3)
        assert done.returncode == 2 and says in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) <= 2
    assert not list_runs(head.folder / "distdbg-runs")


def test_a_run_directory_that_the_nodes_do_not_see(head):
    """/tmp is each host's own."""
    folder = f"/tmp/own-{os.getpid()}"
    done = head.distdbg("launch", "--on", "slurm", "--run-dir", folder, "train.py", 3)
    assert done.returncode == 2, done.stderr
    assert "could not open" in done.stderr and "file system that all nodes share" in done.stderr


def test_a_frozen_controller(head):
    """Several nodes run here then, what is to be submitted is given up, and a job that is followed is followed on."""
    following = head.popen("launch", "--on", "slurm", "--nproc-per-node", 1, "train.py", 500, stderr=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert following.stdout.readline() == "from 0 on node1\n"
    controller = next(p for p, line in head.bed["head"].processes().items() if line.startswith("slurmctld"))
    os.kill(controller, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        refused = head.distdbg("launch", "--nodes", 2, "--dry-run", "train.py", 3)
        assert "its controller does not answer: the 2 nodes run on this machine" in refused.stderr
        assert refused.returncode == 0 and time.monotonic() - begun < 20
        begun = time.monotonic()
        refused = head.distdbg("launch", "--on", "slurm", "--nodes", 2, "train.py", 3)
        assert refused.returncode == 2 and time.monotonic() - begun < commands._WITHIN_S + 5, refused.stderr
        assert "nothing was submitted: Slurm's controller does not answer" in refused.stderr
        assert len(refused.stderr.splitlines()) <= 2 and len(list_runs(head.folder / "distdbg-runs")) == 1
        assert "finished" not in head.newest.events.read_text()
        head.until(lambda: '"finished"' in head.newest.events.read_text())
    finally:
        os.kill(controller, signal.SIGCONT)
    _, err = following.communicate(timeout=60)
    assert following.returncode == 0, err
    assert not head.run("squeue", "-h").stdout, "what was refused is in the queue"


# -- hang-dump --slurm-job ------------------------------------------------------------------------------------------

HANGS = """
import os, time
import torch, torch.distributed as dist
rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
dist.init_process_group("gloo", init_method="tcp://node1:29777", rank=rank, world_size=size)
dist.all_reduce(torch.ones(1))
if rank == 0:
    print("there", flush=True)
    time.sleep(1000)
dist.all_reduce(torch.ones(1))
"""


def test_a_job_of_srun_alone_is_looked_at_on_all_its_nodes(head):
    (head.folder / "hangs.py").write_text(HANGS)
    script = f"srun {sys.executable} hangs.py"
    number = head.run(
        "sbatch", "--parsable", "-N2", "--ntasks-per-node=2", "-o", "out", "--wrap", script
    ).stdout.strip()
    head.until(lambda: (head.folder / "out").exists() and "there" in (head.folder / "out").read_text())
    done = head.distdbg("hang-dump", "--slurm-job", number, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 10 and report["findings"][0]["ranks"] == [0], done.stdout + done.stderr
    assert {rank["node"] for rank in report["ranks"]} == {"node1", "node2"} and len(report["ranks"]) == 4
    assert not report["unknown"]

    head.bed.blackhole("node2")
    try:
        begun = time.monotonic()
        done = head.distdbg("hang-dump", "--slurm-job", number, "--json")
        report = json.loads(done.stdout)
        assert time.monotonic() - begun < 60
        assert [item["what"] for item in report["unknown"]] == ["node node2", "the state of ranks 2-3"]
        assert report["findings"][0]["ranks"] in ([0], [2, 3])
    finally:
        head.bed.heal("node2")
    gone = head.distdbg("hang-dump", "--slurm-job", "9999")
    assert gone.returncode == 3 and "Slurm does not know job 9999" in gone.stderr
