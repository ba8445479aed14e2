"""Which rank is on which device: nodes, parts of a machine's devices, MIG instances, and many ranks."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from distdbg.rundir import list_runs
from tests.gpu.conftest import END, STEP

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: A device's number in its machine is that of its bus. Without DDP, no rank waits for another.
WHERE = """
import os, torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.zeros(1, device="cuda")
bus = torch.cuda.get_device_properties(torch.cuda.current_device()).pci_bus_id
print("on", bus - 1, "of", torch.cuda.device_count(), flush=True)
"""


def places(box):
    """What each rank printed."""
    run = list_runs(box.folder / "distdbg-runs")[-1]
    printed = [(path / "stdout.log").read_text() for path in sorted((run.attempt(1).folder / "ranks").iterdir())]
    return [tuple(map(int, re.findall(r"\d+", text))) for text in printed]


@pytest.mark.parametrize(("words", "seen"), [((), 2), (("--virtual-local-rank",), 1)], ids=["listed", "one-a-rank"])
def test_ranks_go_to_the_devices_that_are_visible(gpus, words, seen):
    """Two of four, and as many ranks as there are of them; each rank sees both, or its own alone."""
    box = gpus(devices=4)
    done, report = box.launch(WHERE, *words, ranks="gpu", env={"CUDA_VISIBLE_DEVICES": "1,3"})
    assert (done.code, report["findings"]) == (0, []), done
    assert places(box) == [(1, seen), (3, seen)]


def test_a_process_sees_one_mig_instance(gpus):
    """Their names are those of NVML; two ranks need the option that gives each its own."""
    box = gpus(devices=1, faults={None: "mig instances=2 device=0"})
    ask = "from distdbg.collect.machine.gpus import devices; print(*(i.uuid for i in devices()[0].instances))"
    names = subprocess.run([sys.executable, "-c", ask], env=box.environ, capture_output=True, text=True, check=True)
    both = ",".join(names.stdout.split())
    assert re.fullmatch(r"MIG-\S+,MIG-\S+", both)
    (box.folder / "train.py").write_text(WHERE)
    words = ("launch", "--dry-run", "--nproc-per-node", "2")
    refused = box.run(*words, "train.py", env={"CUDA_VISIBLE_DEVICES": both})
    assert refused.code == 2 and "one MIG instance" in refused.err and "--virtual-local-rank" in refused.err, refused
    planned = box.run(*words, "--virtual-local-rank", "train.py", env={"CUDA_VISIBLE_DEVICES": both})
    assert planned.code == 0 and "--virtual-local-rank" in planned.out, planned


JOB = f"""
import os, time
import torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begin = time.time()
for step in range(STEPS):{STEP}
    time.sleep(PAUSE)
{END}"""


def test_two_nodes_have_devices_of_their_own(gpus):
    """On one machine each node gets a share of the device numbers; its agent's NVML shows its own ranks on them."""
    box = gpus(devices=4)
    done, report = box.launch(JOB.replace("STEPS", "32").replace("PAUSE", "0.5"), "--nodes", "2", ranks=2, timeout=120)
    assert (done.code, report["outcome"], report["findings"]) == (0, "succeeded", []), report
    run = list_runs(box.folder / "distdbg-runs")[-1]
    on = []
    for node in sorted((run.attempt(1).folder / "nodes").iterdir()):
        lines = [json.loads(line) for line in (node / "metrics.jsonl").read_text().splitlines()]
        on.append({gpu["index"]: gpu["ranks"] for line in lines for gpu in line.get("gpus", ()) if gpu["ranks"]})
    assert on == [{0: [0], 1: [1]}, {2: [2], 3: [3]}]


def test_twelve_ranks(gpus):
    """FSDP2, on devices that move no large data: twelve processes fit into a small machine."""
    wrapped = "torch.distributed.fsdp.fully_shard(torch.nn.Linear(64, 64).cuda())"
    script = JOB.replace("torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())", wrapped)
    script = script.replace("import os", "import os, torch.distributed.fsdp")
    box = gpus(devices=12, values=False)
    done, report = box.launch(script.replace("STEPS", "3").replace("PAUSE", "0"), ranks=12, timeout=240)
    assert (done.code, report["outcome"], report["findings"]) == (0, "succeeded", []), report
    assert [(rank["rank"], rank["step"]) for rank in report["ranks"]] == [(n, 3) for n in range(12)]
