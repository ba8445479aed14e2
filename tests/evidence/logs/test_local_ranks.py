"""A local rank is a rank only where something says of which node it is."""

import pytest

from tests.evidence.logs.reading import read_logs

RAISED = "[default3]:Traceback (most recent call last):\n[default3]:ValueError: x\n"
TABLE = """Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_06:20:18
  host      : {host}
  rank      : {rank} (local_rank: {local_rank})
  exitcode  : 1 (pid: 4327)
"""
SPAWNED = "-- Process 3 terminated with the following error:\n" + RAISED.replace("[default3]:", "")
KILLED = "E0501 10:00:02.2 140 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: -9) local_rank: 3 (pid: 71) of binary: /usr/bin/python\n"  # noqa: E501
ONE_NODE = (
    "torchrun --nnodes=1 train.py\n", "torchrun --standalone train.py\n", "SLURM_JOB_NUM_NODES=1\n", "  nnodes: 1\n",
    "  max_nodes        : 1\n", "  group_world_size=1\n", "accelerate launch --num_machines 1 train.py\n",
    "[2024-05-01 10:00:00,1] [INFO] [launch.py:164:main] nnodes=1, num_local_procs=4, node_rank=0\n",
    "n7:7:9 [0] NCCL INFO comm 0x5 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n",
    "WORLD_SIZE=8 LOCAL_WORLD_SIZE=8\n", "[default3]:a\n[default0]:a\n[default1]:a\n[default2]:a\nworld_size: 4\n",
    "[default3]:a\n[default0]:a\n[default1]:a\n[default2]:a\nInitializing distributed: GLOBAL_RANK: 0, MEMBER: 1/4\n",
)  # fmt: skip
SEVERAL = (
    "torchrun --nnodes=2 train.py\n", "torchrun --nnodes 1:4 train.py\n", "WORLD_SIZE=16 LOCAL_WORLD_SIZE=8\n",
    "[default0]:a\nworld_size: 4\n", "node1: a\nnode2: a\ntorchrun --nnodes=1\n", "",
)  # fmt: skip


@pytest.mark.parametrize("said", ONE_NODE)
@pytest.mark.parametrize("text", [RAISED, SPAWNED, KILLED], ids=["tee", "spawn", "elastic"])
def test_in_a_job_of_one_node_it_is_the_rank(said, text):
    found = read_logs({"job.log": said + text})
    assert not found.unattributed
    assert found.ranks[3].exceptions or found.ranks[3].exit_code


@pytest.mark.parametrize("said", SEVERAL)
@pytest.mark.parametrize("text", [RAISED, SPAWNED, KILLED], ids=["tee", "spawn", "elastic"])
def test_else_it_is_a_local_rank_and_no_rank(said, text):
    found = read_logs({"job.log": said + text})
    assert not found.ranks
    assert [process.local_rank for process in found.unattributed] == [3]


def test_one_pair_gives_the_ranks_of_a_node():
    table = TABLE.format(host="n2", rank=11, local_rank=3)
    assert read_logs({"job.log": RAISED + table}).ranks[11].exceptions
    assert read_logs({"n1.log": "[default0]:a\n", "n2.log": "[default0]:[rank8]: a\n" + RAISED}).ranks[11].exceptions
    assert not read_logs({"job.log": "[default0]:[rank8]: a\n" + RAISED}).ranks[8].exceptions


def test_a_pair_of_one_node_says_nothing_of_another():
    lines = RAISED.replace("[default3]:", "n1: [default3]:") + TABLE.format(host="n2", rank=12, local_rank=4)
    found = read_logs({"job.log": lines})
    assert set(found.ranks) == {12}
    assert [(process.host, process.local_rank) for process in found.unattributed] == [("n1", 3)]
    found = read_logs({"job.log": RAISED + "torchrun --nnodes=2\n" + TABLE.format(host="n2", rank=12, local_rank=4)})
    assert [(process.host, process.local_rank) for process in found.unattributed] == [("", 3)]


def test_the_folders_of_torchrun_are_local_ranks_of_their_launcher():
    alone = {"logs/none_a/attempt_0/3/stderr.log": "Traceback (most recent call last):\nValueError: x\n"}
    assert [process.local_rank for process in read_logs(alone).unattributed] == [3]
    beside = {
        "logs/none_a/attempt_0/0/stderr.log": "[rank8]: a\nTraceback (most recent call last):\nKeyError: 1\n",
        "logs/none_b/attempt_0/0/stderr.log": "Traceback (most recent call last):\nKeyError: 2\n",
    }
    found = read_logs(alone | beside)
    assert {rank: process.exceptions[0].type for rank, process in found.ranks.items()} == {
        8: "KeyError",
        11: "ValueError",
    }
    assert [process.local_rank for process in found.unattributed] == [0]
