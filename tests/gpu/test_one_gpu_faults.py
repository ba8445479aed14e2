"""Faults that one real GPU can show: CUDA's errors, a kernel that never ends, torch's watchdog, two ranks on a device.

On hardware the script itself makes the fault. On the GPU box the fault is planted in the kernel that would meet it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.logs.nccl import read_nccl_log
from distdbg.report.json_form import as_json
from distdbg.rundir import list_runs
from tests.gpu.conftest import BEGIN, HARDWARE, STEP, line_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.one_gpu]


def planted(fault: str) -> dict[int, str] | None:
    """The fault on the box; on hardware the script makes it."""
    return None if HARDWARE else {0: fault}


def root_causes(report):
    return [finding for finding in report["findings"] if finding["explained_by"] is None]


#: The tensor views memory that the allocator has given back to the driver.
DANGLING = f"""{BEGIN}
class View:
    def __init__(self, owner):
        self.__cuda_array_interface__ = {{
            "data": (owner.data_ptr(), False), "shape": (64,), "typestr": "<f4", "strides": None, "version": 3}}
for step in range(5):{STEP}
owner = torch.empty(1 << 28, device="cuda")
view = torch.as_tensor(View(owner), device="cuda")
view = view.as_strided((64,), (1,))
pointer, owner = owner.data_ptr(), None
del owner
torch.cuda.synchronize()
torch.cuda.empty_cache()
view.fill_(1.0); torch.cuda.synchronize()  # fault
"""


def test_a_write_to_freed_memory_is_an_illegal_access(gpus, figure):
    box = gpus(faults=planted("illegal-address kernel=spin_kernel"))
    script = DANGLING if HARDWARE else DANGLING.replace("view.fill_(1.0)", "torch.cuda._sleep(1)")
    done, report = box.launch(script)
    (root,) = root_causes(report)
    figure("illegal address: finding", root["id"])
    assert (done.code, root["id"], root["ranks"], report["exit_code_of"]) == (1, "cuda-error", [0], "rank 0"), report
    assert "cuda-illegal-access" in root["cause"], root
    assert f"train.py:{line_of(script, '# fault')}" in root["evidence"][0]["where"], root


#: About ten minutes on a GPU with a clock of 1.7 GHz: the launch ends it.
ENDLESS = f"""{BEGIN}
for step in range(20):{STEP}
torch.cuda.synchronize()
torch.cuda._sleep(1 << 40)
torch.cuda.synchronize()  # waits
"""


def keep_dumps(box, keep):
    for path in (box.folder / "distdbg-runs").rglob("stacks/*.json"):
        keep(f"{path.parent.parent.name}-{path.name}", path.read_text())


def test_a_kernel_that_never_ends_is_the_device(gpus, figure, keep):
    box = gpus(faults=planted("kernel-hang kernel=spin_kernel"))
    done, report = box.launch(ENDLESS, "--hang-timeout", "8", "--on-hang", "kill", "--grace", "3")
    keep_dumps(box, keep)
    keep("endless-report.json", json.dumps(report, indent=1))
    roots = root_causes(report)
    figure("kernel that never ends: findings", ", ".join(f"{f['id']} ({f['confidence']}), {f['side']}" for f in roots))
    (root,) = roots
    assert (done.code, root["id"], root["ranks"], root["side"]) == (75, "stuck-on-device", [0], "device"), report
    assert f"train.py:{line_of(ENDLESS, '# waits')}" in json.dumps(root), root


def test_hang_dump_cannot_tell_a_long_kernel_from_an_endless_one(gpus, figure, keep):
    """Nothing of ours is in the process: nobody has heard of its steps."""
    box = gpus(faults=planted("kernel-hang kernel=spin_kernel"))
    script = "import pathlib, torch\ntorch.zeros(1, device='cuda')\ntorch.cuda._sleep(1 << 40)\n"
    script += "pathlib.Path('ready').touch()\ntorch.cuda.synchronize()  # waits\n"
    (box.folder / "train.py").write_text(script)
    process = subprocess.Popen([sys.executable, "train.py"], cwd=box.folder, env=box.environ)
    try:
        while not (box.folder / "ready").exists():
            assert process.poll() is None
            time.sleep(0.05)
        done = box.run("hang-dump", "--json", "--pid", str(process.pid))
    finally:
        process.kill()
        process.wait()
    keep("plain-process.json", done.out)
    report = json.loads(done.out)
    roots = root_causes(report)
    assert {(f["id"], f["confidence"]) for f in roots} <= {("stuck-on-device", "possible")}, done
    assert roots or report["unknown"], done


#: The collective cannot begin: a kernel on the stream before it never ends.
TIMED_OUT = ENDLESS.replace('"nccl"', '"nccl", timeout=__import__("datetime").timedelta(seconds=6)').replace(
    "torch.cuda.synchronize()  # waits", "dist.all_reduce(torch.ones(4, device='cuda'))\ntorch.cuda.synchronize()"
)


def test_torchs_watchdog_log_and_recorder_are_read(gpus, figure, keep):
    box = gpus(faults=planted("kernel-hang kernel=spin_kernel"))
    env = {"NCCL_DEBUG": "INFO", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    done, report = box.launch(TIMED_OUT, "--hang-timeout", "100", "--preset", "hang", env=env, timeout=120)
    rank = list_runs(box.folder / "distdbg-runs")[-1].attempt(1).rank(0)
    logs = {path.name: path.read_text() for path in (rank.stdout, rank.stderr, rank.nccl) if path.is_file()}
    for name, text in logs.items():
        keep(f"timeout-{name}", text)
    keep("timeout-report.json", json.dumps(report, indent=1))
    figure("timeout: findings", ", ".join(f["id"] for f in root_causes(report)))
    figure("timeout: exit code", done.code)
    explained = as_json(build_report(load([rank.stderr])))
    figure("timeout: findings from the log alone", ", ".join(f["id"] for f in explained["findings"]))
    nccl = next(filter(None, map(read_nccl_log, logs.values())))
    figure("NCCL log: version is read", bool(nccl.version))
    figure("NCCL log: network", nccl.network)
    assert root_causes(report) and nccl.version, report


TWO_RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.cuda.set_device(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30 - 10 * dist.get_rank()):  # rank 1 has ten batches less
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
dist.barrier()  # rank 1 waits
"""


def test_two_ranks_on_one_gpu_that_part_with_gloo(gpus, figure):
    box = gpus()
    (box.folder / "train.py").write_text(TWO_RANKS)
    words = ("--nproc-per-node", "2", "--hang-timeout", "8", "--on-hang", "kill", "--grace", "3")
    done = box.run("launch", *words, "train.py", "--backend", "gloo")
    report = box.report()
    errors = [finding for finding in root_causes(report) if finding["severity"] == "error"]
    figure("two ranks on a GPU: findings", ", ".join(f["id"] for f in errors))
    assert done.code == 75 and [(f["id"], f["ranks"]) for f in errors] == [("collective-mismatch", [0, 1])], report
    assert f"train.py:{line_of(TWO_RANKS, '# rank 1 waits')}" in json.dumps(errors[0]), errors
