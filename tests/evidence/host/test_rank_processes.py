"""Process trees as launchers make them, recorded from real jobs of two ranks: which processes are the ranks?"""

import pytest

from distdbg.evidence.host.rank_processes import (
    SeenProcess,
    find_ranks,
    start_index,
    to_be_asked,
    waits_for_its_ranks,
)
from distdbg.evidence.stacks.threads import judged_thread, read_threads

TORCH = {"python": True, "torch": True}
GROUP = TORCH | {"grouped": True}
MEET = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=6)")
SITE = "/venv/lib/python3.11/site-packages/"


def tree(*rows):
    """(pid, parent, argv, environment, more fields)"""
    return {
        pid: SeenProcess(pid, parent, pid, tuple(argv.split()) if isinstance(argv, str) else argv, environment, **more)
        for pid, parent, argv, environment, more in rows
    }


def numbered(number, **more):
    return MEET | {"RANK": str(number), "LOCAL_RANK": str(number)} | more


TREES = {
    "torchrun": (
        [(1, 0, "python -m torch.distributed.run train.py", {}, TORCH),
         (2, 1, "python train.py", numbered(0), GROUP), (3, 1, "python train.py", numbered(1), GROUP),
         (4, 3, "python train.py", numbered(1), TORCH)],  # a loader worker
        {0: 2, 1: 3},
    ),
    "accelerate": (
        [(1, 0, "python /venv/bin/accelerate launch train.py", {"MASTER_PORT": "29500"}, TORCH),
         (2, 1, "python -u train.py", numbered(0), GROUP), (3, 1, "python -u train.py", numbered(1), GROUP)],
        {0: 2, 1: 3},
    ),
    "deepspeed": (
        [(1, 0, "python /venv/bin/deepspeed train.py", {}, TORCH),
         (2, 1, "python -u -m deepspeed.launcher.launch train.py", {}, TORCH),
         (3, 2, "python -u train.py --local_rank=0", numbered(0), GROUP),
         (4, 2, "python -u train.py --local_rank=1", numbered(1), GROUP)],
        {0: 3, 1: 4},
    ),
    "spawn": (  # the DDP tutorial: only MASTER_PORT is set, in a rank that has come so far
        [(1, 0, "python train.py", {}, TORCH),
         (2, 1, SPAWNED, {"MASTER_PORT": "29500"}, GROUP | {"index": 0}), (3, 1, SPAWNED, {}, TORCH | {"index": 1}),
         (4, 2, SPAWNED, {"MASTER_PORT": "29500"}, TORCH)],  # a loader worker
        {0: 2, 1: 3},
    ),
    "spawn-below-a-node-rank": (  # the ImageNet example: RANK is the node's
        [(1, 0, "python train.py", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}, TORCH),
         (2, 1, SPAWNED, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}, GROUP | {"index": 0}),
         (3, 1, SPAWNED, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}, GROUP | {"index": 1})],
        {0: 2, 1: 3},
    ),
    "spawned-ranks-with-workers-that-inherit": (
        [(1, 0, "python train.py", {}, TORCH),
         (2, 1, SPAWNED, numbered(0), GROUP | {"index": 0}), (3, 1, SPAWNED, numbered(1), GROUP | {"index": 1}),
         (4, 2, SPAWNED, numbered(0), TORCH), (5, 3, SPAWNED, numbered(1), TORCH)],
        {0: 2, 1: 3},
    ),
    "lightning": (  # the script is rank 0, and starts the others
        [(1, 0, "python fit.py", MEET | {"NODE_RANK": "0", "LOCAL_RANK": "0"}, GROUP),
         (2, 1, "python fit.py", MEET | {"NODE_RANK": "0", "LOCAL_RANK": "1"}, GROUP),
         (3, 1, "python fit.py", MEET | {"NODE_RANK": "0", "LOCAL_RANK": "0"}, TORCH)],  # a loader worker
        {0: 1, 1: 2},
    ),
    "ray": (
        [(1, 0, "python fit.py", {}, TORCH), (2, 1, "/ray/core/src/ray/raylet/raylet", {}, {}),
         (3, 2, "ray::TrainController.run", {}, TORCH),
         (4, 2, "ray::RayTrainWorker", numbered(0), GROUP), (5, 2, "ray::RayTrainWorker", numbered(1), GROUP)],
        {0: 4, 1: 5},
    ),
    "ray-below-torchrun": (  # `distdbg launch --no-python python fit.py`: all have RANK of the driver
        [(9, 0, "python -m torch.distributed.run fit.py", {}, TORCH),
         (1, 9, "python fit.py", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1"}, TORCH),
         (2, 1, "raylet", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1"}, {}),
         (3, 2, "ray::TrainController.run", {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1"}, TORCH),
         (4, 2, "ray::RayTrainWorker", numbered(0), GROUP), (5, 2, "ray::RayTrainWorker", numbered(1), GROUP)],
        {0: 4, 1: 5},
    ),
    "notebook": (  # forked from the kernel, whose command line they have
        [(1, 0, "python -m ipykernel_launcher -f kernel.json", {}, TORCH),
         (2, 1, "python -m ipykernel_launcher -f kernel.json", numbered(0), GROUP | {"index": 0}),
         (3, 1, "python -m ipykernel_launcher -f kernel.json", numbered(1), GROUP | {"index": 1})],
        {0: 2, 1: 3},
    ),
    "srun": (
        [(1, 0, "slurmstepd: [7.0]", {}, {}),
         (2, 1, "python train.py", {"SLURM_PROCID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, GROUP),
         (3, 1, "python train.py", {"SLURM_PROCID": "1", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, TORCH)],
        {0: 2, 1: 3},
    ),
    "the-first-process-of-a-container": (
        [(1, 0, "python -m torch.distributed.run train.py", numbered(3), TORCH),
         (2, 1, "python train.py", numbered(0), GROUP), (3, 1, "python train.py", numbered(1), GROUP)],
        {0: 2, 1: 3},
    ),
    "a-rank-beside-its-own-server": (  # a rank of torchrun that starts a job of its own stays a rank
        [(1, 0, "python train.py", numbered(0), GROUP), (2, 1, SPAWNED, numbered(0), GROUP | {"index": 0})],
        None,
    ),
    "loader-workers-of-a-job-that-is-not-distributed": (
        [(1, 0, "python train.py", {}, TORCH), (2, 1, "python train.py", {}, TORCH)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_the_ranks_of(name):
    rows, ranks = TREES[name]
    found = find_ranks(tree(*rows))
    if ranks is None:
        assert {(one.process.pid, one.rank) for one in found} == {(1, 0), (2, 0)}
        assert len({one.job for one in found}) == 2
        return
    assert {one.rank: one.process.pid for one in found} == ranks
    assert len({one.job for one in found}) == (1 if ranks else 0)


def thread(number, *frames, name="MainThread"):
    """One thread of py-spy's JSON; frames innermost first: (function, file, variables)."""
    listed = [
        {"name": function, "filename": file, "line": 7,
         "locals": [{"name": variable, "repr": value} for variable, value in variables.items()]}
        for function, file, variables in frames
    ]  # fmt: skip
    return {"pid": 9, "os_thread_id": number, "thread_name": name, "frames": listed}


def stack(*threads):
    return read_threads(list(threads))


SLEEPS = ("read_shard", "/home/me/steps.py", {"rank": "5"})
WRAP = ("_wrap", SITE + "torch/multiprocessing/spawn.py", {"fn": "<function main>", "i": "1", "args": "(2,)"})
RUN = ("BaseProcess.run", "/usr/lib/python3.11/multiprocessing/process.py", {})
BORN = ("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", {})
JOIN = ("ProcessContext.join", SITE + "torch/multiprocessing/spawn.py", {})
SELECT = ("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", {})
SCRIPT = ("<module>", "/home/me/train.py", {})


@pytest.mark.parametrize(
    ("frames", "number"),
    [
        ([SLEEPS, ("rank_main", "/home/me/train.py", {"index": "1"}), WRAP, RUN, BORN, SCRIPT], 1),
        ([("run", "/home/me/train.py", {}), ("init", "/home/me/train.py", {"rank": "1", "size": "2"}), RUN, BORN], 1),
        ([("_worker_loop", SITE + "torch/utils/data/_utils/worker.py", {}), RUN, BORN, SLEEPS, WRAP, RUN, BORN], None),
        ([SELECT, JOIN, SCRIPT], None),
        ([SLEEPS, SCRIPT], None),
        ([], None),
    ],
    ids=["spawn", "Process", "a loader worker that was forked from a rank", "the parent", "a script", "no stack"],
)
def test_the_number_that_a_parent_gave(frames, number):
    assert start_index(stack(thread(9, *frames)), 9) == number


def test_only_children_of_multiprocessing_are_asked():
    rows = [
        (1, 0, "python train.py", {}, TORCH), (2, 1, SPAWNED, {}, TORCH), (3, 1, "python train.py", {}, TORCH),
        (4, 1, "python other.py", {}, TORCH), (5, 1, "ninja", {}, {}),
    ]  # fmt: skip
    assert [p.pid for p in to_be_asked(tree(*rows))] == [2, 3]


def test_workers_of_a_rank_whose_number_is_known_are_left_in_peace():
    rank = (1, 0, "python train.py", numbered(0), GROUP)
    assert to_be_asked(tree(rank, (2, 1, "python train.py", numbered(0), TORCH))) == []
    parent = (1, 0, "python train.py", numbered(0), TORCH)  # RANK is its node's number
    rows = [parent, (2, 1, SPAWNED, numbered(0), GROUP), (3, 1, SPAWNED, numbered(0), TORCH)]
    assert [p.pid for p in to_be_asked(tree(*rows))] == [2, 3]


LOOP = ("Worker.main_loop", SITE + "ray/_private/worker.py", {})
WORKER = ("<module>", SITE + "ray/_private/workers/default_worker.py", {})
REDUCES = ("all_reduce", SITE + "torch/distributed/distributed_c10d.py", {})
TRAINS = ("train_loop", "/home/me/train.py", {})
THREAD = ("Thread.run", "/usr/lib/python3.11/threading.py", {})
GETS = ("Worker.get_objects", SITE + "ray/_private/worker.py", {})


@pytest.mark.parametrize(
    ("threads", "judged"),
    [
        ([thread(9, LOOP, WORKER), thread(10, SLEEPS, TRAINS, THREAD, name="T")], 10),
        ([thread(9, LOOP, WORKER), thread(10, SLEEPS, THREAD), thread(11, REDUCES, TRAINS, THREAD)], 11),
        ([thread(9, LOOP, WORKER), thread(10, SLEEPS, THREAD), thread(11, TRAINS, THREAD)], 9),
        ([thread(9, REDUCES, TRAINS, WORKER), thread(10, SLEEPS, THREAD)], 9),
        ([thread(9, SLEEPS, SCRIPT), thread(10, REDUCES, TRAINS, THREAD)], 9),
        ([thread(9, LOOP, WORKER), thread(10, SELECT, THREAD)], 9),
    ],
    ids=["the one that trains", "the one that is in torch", "two that may be it", "the main thread trains",
         "the main thread is the user's", "no other"],
)  # fmt: skip
def test_the_thread_that_is_judged(threads, judged):
    assert judged_thread(stack(*threads), 9).os_id == judged


@pytest.mark.parametrize(
    ("frames", "waits"),
    [([SELECT, JOIN, SCRIPT], True), ([GETS, TRAINS, SCRIPT], True), ([SLEEPS, SCRIPT], False), ([], False),
     ([REDUCES, TRAINS, WRAP, RUN, BORN], False)],
    ids=["spawn", "a driver of Ray", "a script", "no stack", "a rank"],
)  # fmt: skip
def test_a_parent_is_in_a_function_of_its_launcher(frames, waits):
    assert waits_for_its_ranks(stack(thread(9, *frames)), 9) is waits
