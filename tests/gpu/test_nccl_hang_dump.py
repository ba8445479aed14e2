"""`hang-dump` of NCCL jobs that distdbg did not start: torch's pipe, NCCL's RAS, stacks, and what to set next time.

A dump that comes too early says that the job moves, and is taken again. No dump may name a rank that is not at fault.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import MARK

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.xdist_group("nccl programs")]

BEGIN = """
import os, time
import torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, numbers = dist.get_rank(), torch.ones(16, device="cuda")
dist.all_reduce(numbers)
torch.cuda.synchronize()
open(f"ready{rank}", "w").close()
"""
#: Rank 2 leaves out a collective.
LEAVES_OUT = """
if rank == 2:
    time.sleep(3600)
dist.all_reduce(numbers)
numbers.sum().item()
"""
#: Every rank enqueues the same; with the fault below the device of rank 1 does not come to it. Rank 2 sleeps by right.
DEVICE = """
numbers = torch.full((1 << 16,), 1.0, device="cuda")
dist.all_reduce(numbers)
time.sleep(3600) if rank == 2 else torch.cuda.synchronize()
"""
ONE_NEVER_ENDS = {1: "kernel-hang kernel=FillFunctor at=2"}
#: Rank 2 is late in every step, and none hangs.
LATE = """
while True:
    if rank == 2:
        time.sleep(0.5)
    dist.all_reduce(numbers)
    numbers.sum().item()
"""
#: Rank 1 waits for a lock; its stack alone could as well wait for the device.
LOCK = """
import threading
lock = threading.Lock()
lock.acquire()
if rank == 1:
    with lock:
        pass
dist.all_reduce(numbers)
torch.cuda.synchronize()
"""
RANKS = 3
_MOST_DUMPS = 4


@contextmanager
def running(command, folder, env):
    """Processes, ended at the end; yields their pids."""
    started = [
        subprocess.Popen(words, cwd=folder, env={**os.environ, **env, **own, MARK: str(folder)},
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for words, own in command
    ]  # fmt: skip
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.terminate()  # torchrun ends its ranks
        for process in started:
            process.wait(60)


def by_torchrun():
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "train.py"]
    return [(words, {})]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def by_mpirun():
    """Its variables beside those that a script needs for env://."""
    port = free_port()
    for rank in range(RANKS):
        mpi = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": RANKS, "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        own = mpi | {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1"}
        yield [sys.executable, "train.py"], {name: str(value) for name, value in {**own, "MASTER_PORT": port}.items()}


def by_srun():
    """Its variables; the script's own are made of them by a shell, as people do it."""
    port, step = free_port(), {"SLURM_JOB_ID": "78", "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(RANKS)}
    words = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=127.0.0.1"
    for rank in range(RANKS):
        own = step | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        yield ["sh", "-c", f"{words} MASTER_PORT={port} exec {sys.executable} train.py"], own


def roots_of(report):
    return [(f["id"], f["ranks"], f["side"]) for f in report["findings"] if f["explained_by"] is None]


def dumps_of(gpus, script, env, *, command=None, faults=None):
    """(ended command, report) of dumps of the job, until one says that nothing moves."""
    box = gpus(devices=RANKS, faults=faults or {})
    env = {"NCCL_RAS_ADDR": f"localhost:{free_port()}", **env}  # other tests' jobs answer at the usual one
    (box.folder / "train.py").write_text(BEGIN + script)
    with running(command or by_torchrun(), box.folder, box.env | env) as pids:
        while not all((box.folder / f"ready{rank}").exists() for rank in range(RANKS)):
            assert all(Path("/proc", str(pid)).exists() for pid in pids)
            time.sleep(0.1)
        found = []
        for _ in range(_MOST_DUMPS):
            done = box.run("hang-dump", "--json", *(word for pid in pids for word in ("--pid", str(pid))))
            found.append((done, json.loads(done.out)))
            if not any(u["what"] == "whether it hangs" for u in found[-1][1]["unknown"]):
                break
    return found


@pytest.mark.parametrize("launcher", [by_torchrun, by_mpirun, by_srun])
def test_with_torchs_pipe(gpus, launcher, tmp_path):
    """nccl2 has no pipe."""
    env = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/recorder_"}
    env["TORCH_DIST_USE_NCCL2"] = "0"
    *early, (done, report) = dumps_of(gpus, LEAVES_OUT, env, command=list(launcher()))
    assert not any(roots_of(one) for _, one in early)
    assert roots_of(report) == [("stuck-in-python", [2], "host")] and done.code == 10, report
    assert "number 2 in the default group" in report["findings"][0]["cause"], report


def test_with_torchs_debug_server(gpus):
    """As start_debug_server makes it in each rank; no pipe is set."""
    server = 'from torch._C._distributed_c10d import _WorkerServer\nserver = _WorkerServer("::", 0)\n'
    *early, (done, report) = dumps_of(gpus, server + LEAVES_OUT, {"NCCL_RAS_ENABLE": "0"})
    assert not any(roots_of(one) for _, one in early)
    assert roots_of(report) == [("stuck-in-python", [2], "host")] and done.code == 10, report
    assert "number 2 in the default group" in report["findings"][0]["cause"], report


@pytest.mark.parametrize(("ras", "sure"), [("1", "likely"), ("0", "possible")], ids=["NCCL counts", "stacks alone"])
def test_without_it_the_next_time_is_told(gpus, ras, sure):
    *early, (done, report) = dumps_of(gpus, LEAVES_OUT, {"NCCL_RAS_ENABLE": ras})
    assert not any(roots_of(one) for _, one in early)
    assert roots_of(report) == [("stuck-in-python", [2], "host")] and done.code == 10, report
    assert report["findings"][0]["confidence"] == sure
    told = [u for u in report["unknown"] if "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" in u["because"]]
    assert [u["what"] for u in told] == ["the flight recorder of ranks 0-2"], report


def test_a_host_that_has_enqueued_all_is_not_at_fault(gpus):
    """Rank 2 sleeps, and has launched as much as the others: NCCL's counts outweigh its stack."""
    *early, (done, report) = dumps_of(gpus, DEVICE, {}, faults=ONE_NEVER_ENDS)
    assert not any(roots_of(one) for _, one in (*early, (done, report))) and done.code == 11, report
    assert [u["because"] for u in report["unknown"] if u["what"] == "why the job stands still"], report


def test_a_lock_that_looks_like_a_wait_for_the_device(gpus):
    """NCCL's counts name the rank, its stack does not say why."""
    *early, (done, report) = dumps_of(gpus, LOCK, {})
    assert not any(roots_of(one) for _, one in early)
    assert [(i, r) for i, r, _ in roots_of(report)] in ([("collective-not-joined", [1])], [("stuck-on-lock", [1])])
    assert done.code == 10, report


def test_a_job_that_is_slow_is_not_sick(gpus):
    """Its ranks stand in the same lines at most looks."""
    for _, report in dumps_of(gpus, LATE, {}):
        assert not [f for f in report["findings"] if f["severity"] == "error"], report
