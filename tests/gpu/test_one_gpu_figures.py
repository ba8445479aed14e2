"""Figures of one GPU: the allocator, NVML, peaks of jobs, and what the worker side costs a step.

On the GPU box they are what distdbg predicts; on hardware, what is true. tests/gpu/on_hardware.sh compares them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.conftest import BEGIN, END, HARDWARE, STEP

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.one_gpu]
MIB = 1 << 20
JOBS = Path(__file__).with_name("one_gpu_jobs.py")
OVERHEAD = Path(__file__).parents[2] / "benchmarks" / "worker_overhead.py"


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "expandable"])
def test_snapshots_of_the_allocator(gpus, figure, expandable):
    """200 MiB are kept, 100 MiB in every second of forty blocks are freed: their holes stay reserved."""
    body = f"""
for step in range(5):{STEP}
kept = torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
blocks = [torch.empty(5 << 20, dtype=torch.uint8, device="cuda") for _ in range(40)]
del blocks[::2]
for step in range(5):{STEP}
{END}"""
    option = {"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"}
    done, report = gpus().launch(BEGIN + body, "--memory", "--memory-steps", "6:9", env=option)
    assert (done.code, report["outcome"]) == (0, "succeeded"), done
    analysed = gpus().run("memory", "analyze", "distdbg-runs/latest", "--json")
    answer = json.loads(analysed.out)["memory"][-1]
    for name in ("active", "reserved"):
        figure(f"{'expandable' if expandable else 'segments'}: {name} at the peak", answer["peak"][name])
    assert 300 * MIB <= answer["peak"]["active"] <= answer["peak"]["reserved"], answer


STAGES = """
import json, torch, torch.distributed as dist
def beside():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()
x = torch.zeros(1024, 1024, device="cuda")
stages = {"a context": beside()}
x @ x
stages["and cuBLAS"] = beside()
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29999", rank=0, world_size=1)
dist.all_reduce(x)
stages["and a communicator of one rank"] = beside()
dist.destroy_process_group()
print(json.dumps(stages))
"""


def test_memory_beside_the_allocator(gpus, figure):
    """What `rehearse` adds to the allocator's peak."""
    done = subprocess.run([sys.executable, "-c", STAGES], env=gpus().environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for stage, used in json.loads(done.stdout.splitlines()[-1]).items():
        figure(f"{stage}, MiB", round(used / MIB))


def test_nvml_of_an_idle_and_a_busy_gpu(gpus, figure):
    box = gpus()
    looked = json.loads(box.run("preflight", "--no-allreduce", "--json").out)
    figure("preflight: findings about GPUs", [f["id"] for f in looked["findings"] if f["id"].startswith("gpu-")])
    body = f"""
import pathlib
run = pathlib.Path(os.environ["DISTDBG_RUN_DIR"])
until = time.time() + 60
while time.time() < until and sum(path.read_text().count('"gpus"') for path in run.rglob("metrics.jsonl")) < 2:{STEP}
torch.cuda.synchronize()
print("FIGURES", torch.cuda.memory_reserved(), *torch.cuda.mem_get_info(), flush=True)
{END}"""
    done, report = box.launch(BEGIN + body)
    assert (done.code, report["findings"]) == (0, []), done
    (rank,) = json.loads(box.run("top", "--once", "--json").out)["ranks"]
    from distdbg.rundir import list_runs

    printed = (list_runs(box.folder / "distdbg-runs")[-1].attempt(1).rank(0).folder / "stdout.log").read_text()
    reserved, free, total = map(int, printed.partition("FIGURES")[2].split()[:3])
    figure("NVML: total differs from CUDA's, MiB", round((rank["gpu_total"] - total) / MIB))
    figure("NVML: used beside the allocator, MiB", round((rank["gpu_used"] - reserved) / MIB))
    figure("CUDA: used beside the allocator, MiB", round((total - free - reserved) / MIB))
    assert rank["gpu_total"] > 0 and rank["gpu_used"] > reserved and rank["gpu_slowed"] in ("", None, []), rank


@pytest.mark.parametrize("job", ["ddp", "fsdp2", "amp", "checkpointing", "convolution"])
def test_peak_of_a_job(gpus, figure, job):
    """What `rehearse` predicts is this figure of the box."""
    box = gpus(memory="80G", values=False)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", JOBS, job]
    done = subprocess.run(command, env=box.environ, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout.splitlines()[-1])
    for name, value in peaks.items():
        figure(f"{job}: {name}", value)
    assert 100 * MIB < peaks["allocated"] <= peaks["reserved"], peaks


def test_what_the_worker_side_costs_a_step(gpus, figure, tmp_path):
    """No bound here: on the box kernels take no time. benchmarks/worker_overhead.py --check has one."""
    written = tmp_path / "cost.json"
    rounds = ("--rounds", "60" if HARDWARE else "10", "--boot-rounds", "1")
    command = [sys.executable, OVERHEAD, "--device", "cuda", *rounds, "--json", written]
    subprocess.run(command, check=True, env={**os.environ, **gpus().env})
    measured = json.loads(written.read_text())
    for what in ("step", "collective"):
        figure(f"{what}: us without distdbg (time)", measured[what]["plain_us"])
        figure(f"{what}: us added (time)", measured[what]["added_us"])
    assert measured["hooks"] > 0
