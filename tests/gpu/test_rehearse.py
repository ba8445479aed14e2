"""`distdbg rehearse` with real torch on simulated devices: what fits, what does not, and ranks that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.launch.plan.environment import holds
from gpu_box.build import OLDER_TORCH, TORCH
from tests.gpu.fixtures import EACH_TORCH, need_box

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
LAUNCH = Path(__file__).resolve().parents[2] / "launch"
BEGIN = """
import os
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4096, 4096).cuda())
optimizer = torch.optim.AdamW(model.parameters())
"""


@pytest.fixture
def rehearse(distdbg, tmp_path, box_torch):
    """`rehearse(script, *options)`: (what it did, its JSON). The box's torch is the one that is installed."""

    def call(script, *options, arguments=()):
        path = script if isinstance(script, Path) else tmp_path / "train.py"
        if path is not script:
            path.write_text(script)
        torch = need_box(box_torch).parent  # …/distdbg/gpu-box/torch-…
        env = {"XDG_CACHE_HOME": str(torch.parents[2]), "PYTHONPATH": str(torch)}
        words = ("--gpus", "2", "--gpu-memory", "8GiB", "--json", *options)
        done = distdbg("rehearse", *words, path, *arguments, env=env, timeout=200)
        assert done.out, done
        return done, json.loads(done.out)

    return call


@EACH_TORCH
def test_a_job_that_fits(rehearse, box_torch):
    """FSDP2 with a checkpoint, which exchanges objects: their sizes are values, and there are none otherwise."""
    done, report = rehearse(LAUNCH / "fsdp.py", arguments=("--steps", "3"))
    found = report["rehearsal"]
    assert (done.code, found["fits"], found["ran_out"], found["step"]) == (0, True, [], 3), done
    assert [peak["rank"] for peak in found["peaks"]] == [0, 1]
    least = (8 << 20) + sum(workspaces(box_torch, 32 << 20))
    assert all(least < peak["allocated"] <= peak["reserved"] < 200 << 20 for peak in found["peaks"])
    (group,) = found["groups"]
    assert (group["ranks"], group["across"], group["difference"]) == ([0, 1], False, "")
    counts: dict[tuple[str, str], int] = {}
    for row in group["rows"]:
        counts[row["operation"], row["phase"]] = counts.get((row["operation"], row["phase"]), 0) + row["count"]
    assert counts["all_gather_into_tensor", "forward"] == 6, "three units, in each of two micro-batches"
    assert counts["all_gather_into_tensor", "backward"] == 4, "the root stays gathered"
    assert counts["reduce_scatter_tensor", "backward"] == 3
    lines = {Path(row["where"].rpartition(":")[0]).name for row in group["rows"] if row["where"]}
    assert lines == {"gpt.py", "fsdp.py"}
    assert {row["module"] for row in group["rows"]} == {"", "blocks.*"} and len(group["order"]) == 14
    assert found["crossed"] == "" and found["kinds"][0]["expandable_reserved"] > found["kinds"][0]["peak"]
    assert all(peak["left"] == (8 << 30) - peak["beside"] - peak["allocated"] for peak in found["peaks"])


@EACH_TORCH
def test_a_rank_that_alone_runs_out_of_memory(rehearse):
    script = BEGIN + (
        "for step in range(3):\n"
        "    batch = torch.randn((64, 4096) if rank == 0 else (500_000, 4096), device='cuda')\n"
        "    loss = model(batch).sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    value = loss.item()\n"
        "    if value < -1e30:\n"
        "        break\n"
    )
    line = next(n for n, text in enumerate(script.split("\n"), 1) if "batch = " in text)
    done, report = rehearse(script)
    assert (done.code, report["rehearsal"]["fits"], report["rehearsal"]["ran_out"]) == (1, False, [1]), done
    (branch,) = report["rehearsal"]["branches"]
    assert (branch["words"], branch["loops"], branch["ranks"]) == ("if value < -1e30", True, [0]), branch
    assert branch["where"].endswith(f"train.py:{line + 5}"), branch
    cause = next(f for f in report["findings"] if f["explained_by"] is None)
    assert (cause["id"], cause["ranks"]) == ("cuda-oom", [1]) and f"train.py:{line}" in json.dumps(cause), cause


def test_the_largest_batch_that_fits(rehearse):
    script = BEGIN + (
        "import sys\n"
        "x = torch.randn(8, 8, device='cuda')\n"  # no value of it is known: sizes have bounds, and checks find nothing
        "assert len(torch.nonzero(x)) == len(torch.unique(x)) == x[x > 3].numel() == 64\n"
        "assert torch.isfinite(x).all() and not torch.isnan(x).any()\n"
        "for step in range(2):\n"
        "    model(torch.randn(int(sys.argv[-1]) * 90_000, 4096, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    done, report = rehearse(script, "--gpus", "1", "--fit", "batch=1:2")
    found = report["fit"]
    assert (done.code, found["name"], found["best"]) == (0, "batch", 1), done
    assert [(one["value"], one["fits"]) for one in found["tries"]] == [(1, True), (2, False)]


def test_peak_of_a_script_without_an_optimizer(rehearse):
    """Nothing ends a step. At the peak there are the parameter, and its gradient."""
    script = (
        "import torch\n"
        "weight = torch.zeros(64 << 20, device='cuda', requires_grad=True)\n"
        "for step in range(3):\n"
        "    (weight * 2).sum().backward()\n"
        "    weight.grad = None\n"
    )
    done, report = rehearse(script, "--gpus", "1")
    (peak,) = report["rehearsal"]["peaks"]
    assert (done.code, report["rehearsal"]["fits"], peak["step"]) == (0, True, 0), done
    assert 512 << 20 <= peak["allocated"] <= peak["reserved"] < 544 << 20, peak
    (kinds,) = report["rehearsal"]["kinds"]
    assert 512 << 20 <= kinds["peak"] <= peak["allocated"] and sum(kinds["kinds"].values()) == kinds["peak"], kinds


def workspaces(torch, size):
    """What torch allocates for cuBLAS at the peak of a backward: kept ones of the forward and the backward, or one."""
    return [size] * (2 if holds("cublas-workspaces-are-kept", torch) else 1)


@EACH_TORCH
@pytest.mark.parametrize(("gpu", "capability", "workspace"), [("h100", (9, 0), 32 << 20), ("a100", (8, 0), 8 << 20)])
def test_kinds_of_gpus_and_cublas_workspaces(rehearse, box_torch, gpu, capability, workspace):
    """torch gives cuBLAS a workspace of 32 MiB on Hopper and 8 on Ampere."""
    total = sum(workspaces(box_torch, workspace))
    script = (
        "import torch\n"
        f"assert torch.cuda.get_device_capability() == {capability}\n"
        "model = torch.nn.Linear(64, 64).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "for step in range(3):\n"
        "    model(torch.randn(8, 64, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    done, report = rehearse(script, "--gpus", "1", "--gpu", gpu)
    (kinds,) = report["rehearsal"]["kinds"]
    assert done.code == 0, done
    assert total <= kinds["kinds"]["workspace"] < total + (1 << 20), kinds
    assert sum(kinds["kinds"].values()) - kinds["kinds"]["workspace"] < 1 << 20, kinds


@pytest.mark.parametrize("kept", ["dcp", "files of ranks"])
def test_a_checkpoint_is_resumed_on_more_ranks(rehearse, tmp_path, kept):
    """DCP shards it again. A file of each rank is not there for a rank that was not there."""
    folder = tmp_path / "checkpoint"
    script = BEGIN.replace("torch.nn.parallel.DistributedDataParallel(", "fully_shard(") + (
        "import sys, torch.distributed.checkpoint as dcp\n"
        f"folder = {str(folder)!r}\n"
        "state = {'model': model.state_dict()}\n"
        "if '--resume' in sys.argv:\n"
        + (
            "    dcp.load(state, checkpoint_id=folder)\n"
            if kept == "dcp"
            else "    state = torch.load(f'{folder}/{rank}.pt')\n"
        )
        + "for step in range(2):\n"
        "    model(torch.randn(64, 4096, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "os.makedirs(folder, exist_ok=True)\n"
        + (
            "dcp.save(state, checkpoint_id=folder)\n"
            if kept == "dcp"
            else "torch.save({'rank': rank}, f'{folder}/{rank}.pt')\n"
        )
        + "dist.destroy_process_group()\n"  # the root of DCP's last broadcast must not leave before the others have it
    )
    line = next(n for n, text in enumerate(script.split("\n"), 1) if "torch.load(" in text or "dcp.load(" in text)
    done, report = rehearse(script, "--resume", "3", "--resume-with=--resume")
    assert len(report["ranks"]) == 3, report
    if kept == "dcp":
        assert (done.code, report["rehearsal"]["fits"]) == (0, True), done
    else:
        cause = next(f for f in report["findings"] if f["explained_by"] is None)
        assert (done.code, cause["id"], cause["ranks"]) == (1, "rank-exception", [2]), done
        assert f"train.py:{line}" in json.dumps(cause), cause


MESH = """
import os
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank = dist.get_rank()
mesh = init_device_mesh("cuda", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "tp"))
model = torch.nn.Linear(4096, 4096).cuda()
fully_shard(model, mesh=mesh["tp"])
optimizer = torch.optim.AdamW(model.parameters())
"""


@pytest.mark.parametrize(
    ("box_torch", "device"),
    # With torch 2.15 and device_id chosen ranks do not start: docs/rehearse.md.
    [(TORCH, ""), (OLDER_TORCH, ", device_id=torch.device('cuda', torch.cuda.current_device())")],
)
def test_representatives_of_many_ranks_and_an_oom_of_the_last_stage(rehearse, device):
    """With a device the groups of a mesh are parts of the first one's communicator."""
    script = MESH.replace('("nccl")', f'("nccl"{device})') + (
        "for step in range(3):\n"
        "    batch = torch.randn(64 if mesh['pp'].get_local_rank() == 0 else 500_000, 4096, device='cuda')\n"
        "    model(batch).sum().backward()\n"
        "    optimizer.step()\n"
    )
    line = next(n for n, text in enumerate(script.split("\n"), 1) if "batch = " in text)
    done, report = rehearse(script, "--nodes", "8", "--gpus", "8", "--ranks", "representatives")
    found = report["rehearsal"]
    assert (done.code, found["ranks"], found["fits"]) == (1, [0, 31, 32, 63], False), done
    assert set(found["ran_out"]) & {32, 63} and not set(found["ran_out"]) & {0, 31}, done
    cause = next(f for f in report["findings"] if f["explained_by"] is None)
    assert cause["id"] == "cuda-oom" and f"train.py:{line}" in json.dumps(cause), cause


def test_objects_of_a_rank_that_is_not_run_are_refused(rehearse):
    """Stages of a pipeline send each other the shapes of what they will send."""
    script = MESH + (
        "from torch.distributed.pipelining import PipelineStage, ScheduleGPipe\n"
        "device, group = torch.device('cuda'), mesh['pp'].get_group()\n"
        "stage = PipelineStage(model, mesh['pp'].get_local_rank(), 2, device, group=group)\n"
        "schedule = ScheduleGPipe(stage, 2, loss_fn=lambda a, b: (a - b).sum())\n"
        "schedule.step(target=torch.randn(64, 4096, device='cuda'))\n"
    )
    done, report = rehearse(script, "--nodes", "4", "--ranks", "7")
    (cause,) = [f for f in report["findings"] if f["explained_by"] is None]
    assert (done.code, cause["id"], cause["ranks"]) == (1, "rank-exception", [7]), done
    assert "rank 3 is not run" in cause["summary"] and "--ranks" in cause["summary"], cause


def test_chosen_ranks_that_differ(rehearse):
    """Of 1,024. Ranks that are not run differ from none: the verdict has none of them."""
    script = MESH + (
        "for step in range(3):\n"
        "    model(torch.randn(64, 4096, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "    if rank == 511:\n"
        "        dist.broadcast(torch.zeros(8, device='cuda'), group=mesh['tp'].get_group(), group_src=0)\n"
        "    else:\n"
        "        dist.all_reduce(torch.zeros(8, device='cuda'), group=mesh['tp'].get_group())\n"
        "    torch.cuda.synchronize()\n"
    )
    words = ("--nodes", "128", "--gpus", "8", "--ranks", "0,511", "--hang-timeout", "10")
    done, report = rehearse(script, *words)
    causes = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    assert done.code == 75 and [(f["id"], f["ranks"]) for f in causes] == [("rank-conditional-collective", [0, 511])], (
        done
    )
    assert {one["rank"] for one in report["ranks"]} == {0, 511}
    assert report["rehearsal"]["ranks"] == [0, 511]


@EACH_TORCH
def test_ranks_that_differ(rehearse):
    script = BEGIN + (
        "for step in range(3):\n"
        "    model(torch.randn(64, 4096, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "    if rank == 0:\n"
        "        dist.broadcast(torch.zeros(8, device='cuda'), src=0)\n"
        "    else:\n"
        "        dist.all_reduce(torch.zeros(8, device='cuda'))\n"
        "    torch.cuda.synchronize()\n"
    )
    done, report = rehearse(script, "--hang-timeout", "10")
    causes = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    assert done.code == 75 and [f["id"] for f in causes] == ["rank-conditional-collective"], done
    assert causes[0]["ranks"] == [0, 1] and "train.py:14" in causes[0]["summary"], causes
    assert report["rehearsal"]["fits"] is None


def test_rank_that_works_on_the_cpu_is_not_ended_as_hung(rehearse):
    """For longer than the timeout, while another rank waits for it: before the first step, and after it."""
    works = "end = time.monotonic() + 20\nwhile rank == 0 and time.monotonic() < end: pass\ndist.barrier()\n"
    step = "model(torch.randn(64, 4096, device='cuda')).sum().backward()\noptimizer.step()\n"
    done, report = rehearse(f"import time\n{BEGIN}{works}{step * 3}{works}", "--hang-timeout", "8")
    assert (done.code, report["rehearsal"]["fits"]) == (0, True), done


def test_crossed_orders_that_do_not_hang_are_reported(rehearse):
    """Asynchronous collectives of a mesh: no two ranks share two groups, and the streams have room for all."""
    script = MESH + (
        "groups = [mesh[name].get_group() for name in ('pp', 'tp')]\n"
        "for group in groups:\n"
        "    dist.barrier(group)\n"  # connected, one after the other
        "for step in range(3):\n"
        "    model(torch.randn(64, 4096, device='cuda')).sum().backward()\n"
        "    works = []\n"
        "    for group in groups if rank in (0, 3) else groups[::-1]:\n"
        "        works.append(dist.all_reduce(torch.zeros(8, device='cuda'), group=group, async_op=True))\n"
        "    for work in works:\n"
        "        work.wait()\n"
        "    optimizer.step()\n"
    )
    line = next(n for n, text in enumerate(script.split("\n"), 1) if "works.append" in text)
    done, report = rehearse(script, "--gpus", "4")
    crossed = report["rehearsal"]["crossed"]
    assert (done.code, report["rehearsal"]["fits"]) == (0, True), done
    for rank in range(4):
        assert f"rank {rank} enqueues " in crossed, crossed
    assert "the tp group of ranks 0-1" in crossed and f"train.py:{line}" in crossed, crossed
