"""Ranks among all processes: started here with the variables of launchers, and found again."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.collect.machine.job_processes import (
    LauncherWithoutRanks,
    find_jobs,
    job_of,
)
from distdbg.evidence.host.rank_processes import is_launcher, script_of

WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
#: Starts one more in the same environment, as a loader worker or a wrapper's script is.
PARENT = (
    "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE);"
    "sys.stdin.read(); p.stdin.close(); p.wait()"
)
#: What is a rank by a scheduler's variables alone has torch's library in its memory: here without its import.
LIBRARY = Path(importlib.util.find_spec("torch").origin).with_name("lib") / "libtorch.so"
TORCH = f"import mmap; f = open({str(LIBRARY)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); {WAIT}"


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


def _port(pid, name=b"MASTER_PORT"):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)
    except (ProcessLookupError, FileNotFoundError):  # another job's rank, gone since
        return None
    return found.get(name, b"").decode()


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


BATCH = {"SLURM_JOB_ID": "78", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "16"}


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"},
        {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8",
         "PMIX_RANK": "5", "PMIX_NAMESPACE": "3419340801"},
        {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
        {"PMIX_RANK": "5", "PMIX_NAMESPACE": "slurm.pmix.78.0", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"},
        BATCH | {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"},
        BATCH | {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"},
        BATCH | {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "PMI_RANK": "0", "PMI_SIZE": "2"},
    ],
    ids=["srun", "openmpi", "mpich", "srun-pmix", "openmpi-in-a-batch", "mpich-in-a-batch", "torchrun-in-mpich"],
)  # fmt: skip
def test_a_rank_by_every_launchers_variables(start, variables):
    port = str(1024 + os.getpid() % 60000)  # another case may run in another worker at the same time
    pid = start(TORCH, MASTER_PORT=port, **variables)
    job = mine(port)
    assert [(r.rank, r.local_rank, r.pid) for r in job.ranks] == [(5, 1, pid)]
    assert job.world_size == 8


def test_jobs_that_nothing_names_are_distinguished_by_who_started_them(start):
    """MPICH's, two in one allocation; in one of them a shell with the rank's variables stands above each rank."""
    starts = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {TORCH!r}], stdin=subprocess.PIPE);"
    twice = (
        "import os, subprocess, sys; code = sys.argv[1];"
        "ps = [subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,"
        "      env=os.environ | {'PMI_RANK': str(rank), 'PMI_SIZE': '2'}) for rank in range(2)];"
        "[p.stdout.readline() for p in ps]; print('up', flush=True); sys.stdin.read();"
        "[p.communicate() for p in ps]"
    )
    wrapped = starts + "sys.stdin.read(); p.stdin.close(); p.wait()"
    for code in (TORCH, wrapped):
        start(twice, code, MARKED="64008", SLURM_JOB_ID="78")
    ours = [job for job in find_jobs() if any(_port(rank.pid, b"MARKED") == "64008" for rank in job.ranks)]
    assert [([r.rank for r in job.ranks], job.world_size, job.doubles) for job in ours] == [([0, 1], 2, ())] * 2


def test_a_launcher_is_no_rank_itself(tmp_path):
    (script := tmp_path / "torchrun").write_text(WAIT)
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout.readline() == b"up\n"
        with pytest.raises(LauncherWithoutRanks) as raised:
            job_of([launcher.pid])
        assert raised.value.pid == launcher.pid


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
        ("/venv/bin/python /venv/lib/distdbg/launch/agent/agent.py --run-dir x", True),
        ("/venv/bin/python /venv/lib/distdbg/launch/agent/torchrun.py train.py", True),
        ("/venv/bin/python /venv/lib/distdbg/__main__.py launch train.py", True),
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
