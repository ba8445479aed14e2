"""`--memory` on GPUs: what torch's allocator, the driver and NVML say, in lines, snapshots and verdicts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.rundir import list_runs
from tests.gpu.conftest import BEGIN, END, STEP

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory_recording.py"

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
MIB, GIB = 1 << 20, 1 << 30


def line_of(script: str, text: str) -> int:
    return next(number for number, line in enumerate(script.splitlines(), 1) if text in line)


def memory_lines(folder: Path, rank: int) -> list[dict]:
    run = list_runs(folder / "distdbg-runs")[-1]
    return [json.loads(line) for line in (run.attempt(1).rank(rank).folder / "memory.jsonl").read_text().splitlines()]


#: What one launch told, for several tests
_REPORTS: dict[str, dict] = {}

LEAK = f"""{BEGIN}
kept, leaks = [], dist.get_rank() == 2
for step in range(1000):{STEP}
    if leaks:
        kept.append(torch.empty(50 << 20, dtype=torch.uint8, device="cuda"))
{END}"""


@pytest.fixture
def leak(gpus) -> dict:
    """The report of one launch, whichever test asks first."""
    if "leak" not in _REPORTS:
        done, _REPORTS["leak"] = gpus(devices=4, memory="8G").launch(LEAK, "--memory", ranks=4)
        assert done.code == 1, done
    return _REPORTS["leak"]


@pytest.mark.xdist_group("gpu-leak")  # one launch for both
def test_a_leak_that_fills_the_device_has_its_rank_its_line_and_its_slope(leak, figure):
    found = {f["evidence"][0]["path"].rpartition("/")[2].partition("-")[0]: f
             for f in leak["findings"] if f["id"] == "memory-leak"}  # fmt: skip
    container, snapshot = found["facts.jsonl"], found["oom"]
    (oom,) = (f for f in leak["findings"] if f["id"] == "cuda-oom")
    place = f"train.py:{line_of(LEAK, 'kept.append')}"
    for finding in (container, snapshot):
        assert finding["ranks"] == [2] and place in finding["summary"], finding
    assert oom["ranks"] == [2] and place in oom["remedy"], "from torch 2.15 on a workspace of cuBLAS may be refused"
    slope = float(re.search(r"([\d.]+) MiB a step", snapshot["summary"])[1])
    figure("slope, MiB a step", slope)
    assert abs(slope - 50) < 1 and snapshot["confidence"] == "certain", snapshot
    assert any(c["path"].startswith("attempts/1/ranks/00002/memory/oom-") for c in oom["evidence"]), oom
    assert {rank for f in leak["findings"] for rank in f["ranks"]} == {2}


@pytest.mark.xdist_group("gpu-leak")  # one launch for both
def test_a_leak_that_fills_the_device_is_the_root_cause(leak):
    first = leak["findings"][0]
    (oom,) = (f for f in leak["findings"] if f["id"] == "cuda-oom")
    assert first["id"] == "memory-leak" and oom["explained_by"] is not None and "fragmented" not in oom["summary"]


SEVERAL = """
import json, torch, distdbg
torch.zeros(1, device="cuda:1")
model = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.AdamW(model.parameters())
distdbg.see_memory_usage("before")
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(64, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
graph, still = torch.cuda.CUDAGraph(), torch.zeros(32 << 20, device="cuda")
with torch.cuda.graph(graph):
    private = still + 1  # stands in the graph's own pool
graph.replay()
distdbg.see_memory_usage("after")
told = {d: [torch.cuda.memory_allocated(d), torch.cuda.memory_reserved(d)] for d in (0, 1)}
print("FIGURES", json.dumps(told), flush=True)
kept = []
while True:
    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1"))
"""


def test_several_devices_a_private_pool_and_expandable_segments_in_one_process(gpus, figure, tmp_path):
    box = gpus(devices=2, memory="8G")
    done, report = box.launch(SEVERAL, "--memory", env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert done.code == 1, done
    oom = report["findings"][0]
    assert oom["id"] == "cuda-oom" and f"train.py:{line_of(SEVERAL, 'kept.append')}" in oom["summary"], oom
    assert any("device 1" in c["where"] for c in oom["evidence"]), oom
    out = (list_runs(tmp_path / "distdbg-runs")[-1].attempt(1).rank(0).folder / "stdout.log").read_text()
    told = {int(d): figures for d, figures in json.loads(re.search(r"FIGURES (.*)", out)[1]).items()}
    after = re.search(r"after\nMA ([\d.]+) GB .*?CA ([\d.]+) GB", out)
    assert [float(after[1]), float(after[2])] == [round(n / GIB, 2) for n in told[0]], out
    analysed = json.loads(box.run("memory", "analyze", "distdbg-runs/latest", "--json").out)["memory"]
    device = {answer["device"]: answer for answer in analysed}
    assert set(device) == {0, 1}
    held = device[0]["end"]["active"]  # in bytes that were asked for; the allocator counts steps of 512
    assert held <= told[0][0] < held + 64 * 512 and held >= 256 * MIB  # the graph's pool is in it
    stacks = {one["stack"]["label"]: one["bytes"] for one in device[0]["end"]["stacks"]}
    assert stacks[f"train.py:{line_of(SEVERAL, 'private =')} <module>"] == 128 * MIB, stacks
    figure("reserved of device 1 at the failed request", device[1]["peak"]["reserved"])
    if box.simulated:
        free = 8 * GIB - device[1]["peak"]["reserved"]
        assert device[1]["end"]["active"] // GIB == 7 and free < GIB, device[1]


RUNNING = f"""{BEGIN}
import pathlib
for step in range(100_000):{STEP}
    if step == 40 and dist.get_rank() == 2:
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    time.sleep(0.03)
    stop = torch.full((1,), float(pathlib.Path("stop").exists()), device="cuda")
    dist.all_reduce(stop)
    if stop.item():
        break
    if step == 60:
        pathlib.Path(f"trains{{dist.get_rank()}}").touch()
print("FIGURES", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
{END}"""


def wait_for(what: Callable[[], object], job: subprocess.Popen[bytes], folder: Path) -> None:
    """Fails with what the job and its agent said where the job ends first, or it takes minutes."""
    until = time.monotonic() + 240
    while not what():
        if job.poll() is not None or time.monotonic() > until:
            events = [path.read_text() for path in folder.rglob("events.jsonl")]
            raise AssertionError("\n".join([f"exit code {job.poll()}", (folder / "said").read_text(), *events]))
        time.sleep(0.1)


def looks_at_devices(run: Path) -> int:
    return sum(path.read_text().count('"gpus"') for path in run.rglob("metrics.jsonl"))


def test_a_running_job_has_figures_snapshots_and_what_others_take_of_its_devices(gpus, figure, tmp_path):
    """Another process has 3 of the 8 GiB of device 0; rank 2 once needs a GiB more than the others."""
    taken = f"memory-taken device=0 bytes=3G pid={os.getpid()}"
    box = gpus(devices=3, memory="8G", faults={None: taken})
    (tmp_path / "train.py").write_text(RUNNING)
    command = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "3", "--memory", "train.py"]
    with (tmp_path / "said").open("w") as said:
        job = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **box.env}, stdout=said, stderr=said)
    try:
        wait_for(lambda: all((tmp_path / f"trains{rank}").exists() for rank in range(3)), job, tmp_path)
        asked = box.run("memory", "snapshot", "--ranks", "1")
        run = list_runs(tmp_path / "distdbg-runs")[-1]
        before = looks_at_devices(run.path)
        wait_for(lambda: looks_at_devices(run.path) >= before + 2, job, tmp_path)  # the first may be of an earlier step
        top = json.loads(box.run("top", "--once", "--json").out)
        wait_for(lambda: sum("NV" in line for line in memory_lines(tmp_path, 0)) >= 4, job, tmp_path)
    finally:
        (tmp_path / "stop").touch()
        code = job.wait(timeout=90)
    assert code == 0, (tmp_path / "said").read_text()
    report = json.loads(run.report_json.read_text())
    shown = {row["rank"]: row for row in top["ranks"]}
    if box.simulated:
        assert [shown[rank]["gpu_total"] for rank in range(3)] == [8 * GIB] * 3
        assert shown[0]["gpu_used"] >= 3 * GIB > shown[2]["gpu_used"] >= GIB > shown[1]["gpu_used"] > 512 * MIB, top
    found = {f["id"]: f for f in report["findings"]}
    others, peak = found["untracked-gpu-memory"], found["peak-too-high"]
    assert others["ranks"] == [0] and peak["ranks"] == [2], report["findings"]
    assert asked.code == 0 and any("00001" in path and "pickle" in path for path in asked.out.split()), asked
    for rank in range(3):
        lines = memory_lines(tmp_path, rank)
        out = (run.attempt(1).rank(rank).folder / "stdout.log").read_text()
        allocated, reserved = map(int, re.search(r"FIGURES (\d+) (\d+)", out).groups())
        last = lines[-1]["phases"]["optimizer"]
        assert last["Max_MA"] == allocated and last["Max_CA"] == reserved, (last, out)
        assert (allocated > GIB) == (rank == 2)
        seen = [line for line in lines if "NV" in line][-1]
        outside = seen["NV"] - seen["phases"]["optimizer"]["CA"]
        figure(f"outside of torch on rank {rank}", outside)
        if box.simulated:  # a context of 512 MiB, a communicator of 256 MiB
            assert outside == (768 + 3072 * (rank == 0)) * MIB and seen["NV_total"] == 8 * GIB, seen
    looks = [json.loads(line)["gpus"] for path in run.path.rglob("metrics.jsonl")
             for line in path.read_text().splitlines() if '"gpus"' in line]  # fmt: skip
    look = [gpus for gpus in looks if all(gpu["ranks"] for gpu in gpus)][-1]
    assert [gpu["ranks"] for gpu in look] == [[0], [1], [2]], looks  # taking a snapshot begins no context on GPU 0
    if box.simulated:
        assert [other["pid"] for other in look[0]["others"]] == [os.getpid()], look
        assert look[0]["memory_used"] >= 3 * GIB > look[2]["memory_used"] >= GIB > look[1]["memory_used"]


@pytest.mark.one_gpu
def test_out_of_memory_is_named_with_a_snapshot(gpus):
    fill = "kept = []\nwhile True:\n    kept.append(torch.empty(1 << 30, device='cuda'))\n"
    box = gpus(memory="8G")
    done, report = box.launch(BEGIN + fill, "--memory")
    first = report["findings"][0]
    assert done.code == 1 and first["id"] == "cuda-oom" and first["ranks"] == [0], report
    assert any("/memory/" in cited["path"] for cited in first["evidence"]), first
    (told,) = json.loads(box.run("memory", "analyze", "distdbg-runs/latest", "--json").out)["memory"]
    names = {stack["names"]: stack["kinds"] for stack in told["end"]["stacks"] if stack["names"]}
    assert any(name.startswith(("weight", "bias")) and "parameters" in kinds for name, kinds in names.items()), names


@pytest.mark.one_gpu
def test_shapes_that_grow_leave_what_was_reserved_for_the_shorter_ones(gpus):
    grows = "torch.empty((20 << 20) + step * (1 << 18), dtype=torch.int8, device='cuda')"
    body = f"for step in range(600):\n    time.sleep(0.01)\n    {grows}{STEP}\n{END}"
    _, report = gpus().launch(BEGIN + body, "--memory")
    found = [f for f in report["findings"] if f["id"] == "fragmentation"]
    assert found and "reserves" in found[0]["summary"] and found[0]["ranks"] == [0], report


def test_what_recording_costs_is_measured_and_bounded(gpus, figure, tmp_path):
    """The bound holds for real GPUs alone. Kernels of the box take no time, so a share of its steps says nothing, and a
    number of microseconds says more about what else the machine does than about recording."""
    written = tmp_path / "cost.json"
    command = [sys.executable, BENCHMARK, "--rounds", "2", "--json", written]
    subprocess.run(command, check=True, env={**os.environ, **(box := gpus(values=False)).env})
    told = json.loads(written.read_text())
    figure("microseconds more for a step of a transformer", told["transformer"]["more_us"])
    assert told["short"]["lines"] > 0 and told["transformer"]["lines"] > 0, told
    assert box.simulated or told["transformer"]["more_share"] < 0.25, told
    assert all(us > 0 for us in told["driver"].values()), told
