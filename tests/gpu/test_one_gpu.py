"""What only a GPU shows: CUDA's errors, torch's allocator, NCCL's recorder. One device is enough."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.rundir import list_runs
from tests.gpu.conftest import BEGIN, END, STEP

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.fixture
def launch(gpus):
    return lambda body, *words, **options: gpus(**options).launch(BEGIN + body, *words)


def test_a_healthy_job_gets_nothing(launch):
    done, report = launch(f"for step in range(200):{STEP}\n{END}")
    assert (done.code, report["outcome"], report["findings"]) == (0, "succeeded", []), done


def test_out_of_memory_is_named_with_a_snapshot(launch, distdbg):
    fill = "kept = []\nwhile True:\n    kept.append(torch.empty(1 << 30, device='cuda'))\n"
    done, report = launch(fill, "--memory")
    first = report["findings"][0]
    assert done.code == 1 and first["id"] == "cuda-oom" and first["ranks"] == [0], report
    assert any("/memory/" in cited["path"] for cited in first["evidence"]), first
    (told,) = json.loads(distdbg("memory", "analyze", "distdbg-runs/latest", "--json").out)["memory"]
    names = {stack["names"]: stack["kinds"] for stack in told["end"]["stacks"] if stack["names"]}
    assert any(name.startswith(("weight", "bias")) and "parameters" in kinds for name, kinds in names.items()), names


def test_a_device_side_assert_is_a_cuda_error(launch):
    wrong = "table = torch.zeros(4, device='cuda')\ntable[torch.tensor([9], device='cuda')].sum().item()\n"
    done, report = launch(wrong)
    assert done.code != 0 and report["findings"][0]["id"] == "cuda-error", report


def test_lines_of_memory_have_the_devices_figures(launch, tmp_path):
    launch(f"for step in range(30):{STEP}\n{END}", "--memory")
    run = list_runs(tmp_path / "distdbg-runs")[-1]
    lines = [json.loads(line) for line in (run.attempt(1).rank(0).folder / "memory.jsonl").read_text().splitlines()]
    assert lines and any("MA" in json.dumps(line) or "allocated" in json.dumps(line) for line in lines), lines[:3]


def test_batches_copied_from_pageable_memory_are_named_with_their_line(launch):
    copies = "host = torch.randn(64, 1 << 20)\nfor step in range(60):\n    batch = host.to('cuda')"
    body = f"{copies}{STEP}\n{END}"
    _, report = launch(body, "--profile", "20:25")
    found = [f for f in report["findings"] if f["id"] == "transfer-in-loop"]
    assert found and "train.py" in json.dumps(found), report


def test_shapes_that_grow_leave_what_was_reserved_for_the_shorter_ones(launch):
    grows = "torch.empty((20 << 20) + step * (1 << 18), dtype=torch.int8, device='cuda')"
    body = f"for step in range(600):\n    {grows}{STEP}\n{END}"
    _, report = launch(body, "--memory")
    found = [f for f in report["findings"] if f["id"] == "fragmentation"]
    assert found and "reserves" in found[0]["summary"] and found[0]["ranks"] == [0], report


def test_a_module_that_makes_nan_is_named_a_step_later(launch, tmp_path):
    body = f"""
bad = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
for step in range(200):{STEP}
    if step == 100:
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
{END}"""
    _, report = launch(body, "--watch", "numerics,gradients", "--on-nonfinite", "dump")
    assert [f["id"] for f in report["findings"] if f["id"] == "non-finite"], report
    rank = list_runs(tmp_path / "distdbg-runs")[-1].attempt(1).rank(0)
    assert (rank.nonfinite / "batch.pt").is_file() and (rank.nonfinite / "state.pt").is_file()
    norms = [json.loads(line)["gradient"] for line in rank.gradients.read_text().splitlines()]
    assert len(norms) > 5 and all(norms[0]), "each line is sent when its figures have come"


def test_a_rank_that_waits_on_the_host_is_explained_with_nccls_recorder(launch):
    hang = f"for step in range(50):{STEP}\nprint('waits', flush=True)\nwhile True:\n    time.sleep(1)\n"
    done, report = launch(hang, "--hang-timeout", "8", "--on-hang", "kill", "--grace", "3")
    assert done.code == 75, done
    assert report["findings"][0]["id"] == "stuck-in-python" and report["findings"][0]["ranks"] == [0], report
    assert not [u for u in report["unknown"] if "recorder" in u["what"]], report["unknown"]


def test_what_recording_costs_is_measured_and_bounded(tmp_path):
    """The bound is no claim: a step that only allocates may well cost more than a real one."""
    written = tmp_path / "cost.json"
    subprocess.run([sys.executable, BENCHMARKS / "memory_recording.py", "--rounds", "5", "--json", written], check=True)
    told = json.loads(written.read_text())
    assert told["short"]["lines"] > 0 and told["transformer"]["more_share"] < 0.25, told
    assert all(us > 0 for us in told["driver"].values()), told
