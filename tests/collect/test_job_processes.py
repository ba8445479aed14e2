"""Ranks among all processes: started here with the variables of launchers, and found again."""

import os
import subprocess
import sys

import pytest

from distdbg.collect.job_processes import find_jobs, is_launcher, job_of, script_of

WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
#: Starts one more in the same environment, as a loader worker or a wrapper's script is.
PARENT = (
    "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE);"
    "sys.stdin.read(); p.stdin.close(); p.wait()"
)


@pytest.fixture
def start():
    running = []

    def begin(*argv, **variables):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | variables
        process = subprocess.Popen(
            [sys.executable, "-c", *(argv or (WAIT,))], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        running.append(process)
        assert process.stdout.readline() == b"up\n"
        return process.pid

    yield begin
    for process in running:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def mine(port):
    """Other jobs run on this machine as well."""
    ours = [job for job in find_jobs() if any(_port(rank.pid) == port for rank in job.ranks)]
    return ours[0] if len(ours) == 1 else ours


def _port(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
    except ProcessLookupError:  # another job's rank, gone since
        return None
    return found.get(b"MASTER_PORT", b"").decode()


def test_ranks_of_one_job_and_their_children(start):
    common = {"MASTER_PORT": "64001", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "none"}
    pids = [start(RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in (1, 0)]
    with_child = start(PARENT, WAIT, RANK="2", LOCAL_RANK="2", **common)
    job = mine("64001")
    assert [(r.rank, r.local_rank, r.pid, r.stem) for r in job.ranks] == [
        (0, 0, pids[1], None), (1, 1, pids[0], None), (2, 2, with_child, None)]  # fmt: skip
    assert (job.world_size, job.run_dir, job.doubles) == (3, None, ())


def test_two_jobs_are_two(start):
    for port in ("64002", "64003"):
        start(RANK="0", MASTER_PORT=port, WORLD_SIZE="2")
    assert [len(mine(port).ranks) for port in ("64002", "64003")] == [1, 1]


def test_a_rank_that_two_claim(start):
    pids = [start(RANK="0", MASTER_PORT="64004", WORLD_SIZE="1") for _ in range(2)]
    job = mine("64004")
    assert [(r.pid, job.doubles) for r in job.ranks] == [(pids[0], (pids[1],))]


def test_ranks_that_distdbg_started_bring_their_files(start):
    start(RANK="0", MASTER_PORT="64005", DISTDBG_NODE_DIR="/dev/shm/x", DISTDBG_RUN_DIR="/runs/y", WORLD_SIZE="1")
    job = mine("64005")
    assert (job.run_dir, job.ranks[0].stem) == ("/runs/y", "/dev/shm/x/00000")


def test_a_scheduler_alone_makes_no_rank_of_what_does_not_run_torch(start):
    pid = start(SLURM_PROCID="0", SLURM_JOB_ID="77", MASTER_PORT="64006")
    assert mine("64006") == []
    assert job_of([pid]).ranks[0].rank == 0


def test_pids_whose_ranks_nobody_tells_are_counted(start):
    pids = [start() for _ in range(2)]
    assert [(r.rank, r.pid) for r in job_of(pids).ranks] == [(0, pids[0]), (1, pids[1])]
    with pytest.raises(OSError):
        job_of([2**22 + 1])


@pytest.mark.parametrize(
    ("argv", "is_one"),
    [
        ("/venv/bin/python -m torch.distributed.run train.py", True),
        ("/venv/bin/python -u -m torch.distributed.run train.py", True),
        ("/venv/bin/python /venv/bin/torchrun train.py", True),
        ("/venv/bin/python /venv/bin/accelerate launch train.py", True),
        ("srun -n 4 python train.py", True),
        ("/venv/bin/python -m distdbg hang-dump", True),
        ("/venv/bin/python /venv/lib/distdbg/launch/agent.py --run-dir x", True),
        ("/venv/bin/python -u train.py -m torch.distributed.run", False),
        ("/venv/bin/python /venv/lib/distdbg/worker/boot.py train.py", False),
    ],
)
def test_launchers_are_no_ranks(argv, is_one):
    assert is_launcher(tuple(argv.split())) is is_one


@pytest.mark.parametrize(
    ("argv", "name"),
    [("python -u train.py --lr 1", "train"), ("python -m pkg.train -x", "pkg.train"), ("./a.out", "a"), ("", "job"),
     ("python /x/distdbg/worker/boot.py /y/fit.py 3", "fit"), ("python -X dev t.py", "t")],
)  # fmt: skip
def test_the_name_of_a_job(argv, name):
    assert script_of(tuple(argv.split())) == name
