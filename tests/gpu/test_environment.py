"""Which variables torch's backends of NCCL read: `not_nccl2` of configs/env-names.yaml, by what real jobs ask for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from distdbg.assets import asset_dir

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
NOT_NCCL2 = yaml.safe_load((asset_dir("configs") / "env-names.yaml").read_text())["not_nccl2"]
#: The older backend reads it after an error of its watchdog, which no job here has.
AFTER_AN_ERROR = {"TORCH_NCCL_EXTRA_DUMP_ON_EXEC"}
#: A collective, a transfer, a second group; then rank 1 leaves out a collective until the timeout of 8 s.
JOB = """
import datetime, os, time
import torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=8))
rank, numbers = dist.get_rank(), torch.ones(16, device="cuda")
dist.all_reduce(numbers)
dist.send(numbers, 1) if rank == 0 else dist.recv(numbers, 0)
dist.all_reduce(numbers, group=dist.new_group([0, 1]))
torch.cuda.synchronize()
if rank == 1:
    time.sleep(100)
dist.all_reduce(numbers)
torch.cuda.synchronize()
"""


@pytest.fixture
def asked(gpu_box, tmp_path, need):
    """asked(variables): the names that the ranks of a job with this environment ask for."""
    library = tmp_path / "asked_names.so"
    source = Path(__file__).with_name("asked_names.c")
    subprocess.run([need("gcc", "gcc"), "-shared", "-fPIC", "-o", library, source], check=True)
    (tmp_path / "train.py").write_text(JOB)

    def call(**variables):
        names = tmp_path / f"names{len(variables)}"
        env = gpu_box(devices=2, memory="8G").environment() | variables
        env |= {"LD_PRELOAD": str(library), "ASKED_NAMES": str(names)}
        env["TORCH_FR_DUMP_TEMP_FILE"] = f"{tmp_path}/recorder{len(variables)}_"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
        with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **env}, stderr=subprocess.DEVNULL) as job:
            try:
                while not (tmp_path / f"recorder{len(variables)}_0").exists():  # rank 0 has met its timeout
                    assert job.poll() is None
                    time.sleep(0.2)
            finally:
                job.terminate()
        return set(names.read_text().split())

    return call


def test_variables_that_nccl2_does_not_read(asked):
    nccl2, legacy = asked(), asked(TORCH_DIST_USE_NCCL2="0")
    assert legacy - nccl2 == NOT_NCCL2.keys() - AFTER_AN_ERROR
    assert not nccl2 & AFTER_AN_ERROR
    assert {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_ON_TIMEOUT"} <= nccl2
