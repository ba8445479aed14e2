"""Hosts that ssh reaches: the same agents, the same verdicts, nothing left."""

import json
import os
import signal

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.jobs import jobs, nothing_is_left
from tests.cluster.sshd import Sshd, at_home, need_sshd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("ssh")]
BY_SSH = {"on": "node1", "inside": ()}


@pytest.fixture(scope="module")
def bed():
    need_bed()
    need_sshd()
    with Bed(own_folder(), nodes=2) as made:
        at_home(made, Sshd(made))
        yield made


@pytest.fixture
def launch(bed):
    with jobs(bed) as start:
        yield start


def test_it_trains_with_the_environment_that_it_was_launched_in(bed, launch):
    job = launch("--hosts", "node1,node2", steps=20, **BY_SSH, env={"A_WORD": "it's\n$HOME"})
    assert job.ends(120) == 0, job.said()
    assert all(f"{rank} node{1 + rank // 2} {rank // 2}" in job.said() for rank in range(4))
    assert job.run.read_job()["topology"]["on"] == "ssh"
    events = [json.loads(line) for line in job.run.events.read_text().splitlines()]
    shown = {e["node_rank"]: e["after_s"] for e in events if e["event"] == "shown"}
    assert shown.keys() == {0, 1} and max(shown.values()) < 2, "what a host writes is soon seen by the launcher's"
    nothing_is_left(bed)


def test_a_rank_of_the_second_host_raises(bed, launch):
    job = launch("--hosts", "node1,node2", **BY_SSH, env={"RAISES": "3"})
    assert job.ends(120) == 1, job.said()
    first = job.report()["findings"][0]
    assert (first["id"], first["ranks"], first["nodes"]) == ("rank-exception", [3], ["node2"])
    nothing_is_left(bed)


def test_a_killed_client_ends_the_job(bed, launch):
    job = launch("--nproc-per-node", "1", "--hosts", "node1,node2", **BY_SSH)
    job.trains(ranks=2)
    os.kill(bed["node1"].pids_of("ssh -T")[1], signal.SIGKILL)
    assert job.ends(60) != 0, job.said()
    nothing_is_left(bed)


@pytest.mark.parametrize(
    ("hosts", "says"),
    [("node1,node9", "ssh ended with exit code 255 before the agents were up on node9"), ("./none", "--hosts ./none")],
)
def test_hosts_that_are_none(bed, launch, hosts, says):
    job = launch("--hosts", hosts, **BY_SSH)
    assert job.ends(60) == 2
    assert says in job.said()
    nothing_is_left(bed)


def test_a_folder_that_the_second_host_does_not_have(bed, launch):
    """Its agent comes up, and cannot begin: it is named, and not the other's torchrun, which was ended for it."""
    own = ("sh", "-c", 'mkdir /tmp/own && cp train.py /tmp/own && cd /tmp/own && exec "$@"', "sh")
    job = launch("--run-dir", str(bed.shared / "own-run"), "--hosts", "node1,node2", on="node1", inside=own)
    assert job.ends(120) == 70, job.said()
    assert job.said().count("launch-failed") == 1
    assert "agent on node 1 (node2) ended with exit code 70 before it started a rank" in " ".join(job.said().split())
    assert "the job was launched from a folder that is not here" in " ".join(job.said().split())
    nothing_is_left(bed)


def test_a_dry_run_pasted_into_a_shell_trains(bed, launch):
    pasted = {"on": "node1", "inside": ("sh", "-c", '"$@" > pasted; cat pasted; exec bash pasted', "sh")}
    job = launch("--dry-run", "--hosts", "node1,node2", "--env", "STEPS=.", steps=3, **pasted)
    assert job.ends(120) == 0, job.said()
    assert all(f"{rank} node{1 + rank // 2} {rank // 2}" in job.said() for rank in range(4)), job.said()
    nothing_is_left(bed)
