"""Errors of a device: who is to blame, on which line, and whether NVML agrees."""

from __future__ import annotations

import json

import pytest

from tests.gpu.conftest import BEGIN, END, HARDWARE, STEP, ids, line_of

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

#: The planted kernel is that of `_sleep`. NVML is asked every 5 s: the ranks of a device are known by then.
FAULT = f"""{BEGIN}
time.sleep(6)
for step in range(3000):{STEP}
    time.sleep(0.005)
    if step == 20:
        torch.cuda._sleep(1000); torch.cuda.synchronize()  # fault
{END}"""


@pytest.mark.parametrize(
    ("kind", "message", "xid"),
    [("illegal-address", "cuda-illegal-access", None), ("ecc-error", "cuda-ecc", 48), ("device-lost", "", 79)],
)
def test_an_error_of_a_device_names_its_rank(gpus, kind, message, xid):
    box = gpus(devices=2, faults={1: f"{kind} kernel=spin_kernel"})
    done, report = box.launch(FAULT if xid else FAULT.replace("time.sleep(6)", "pass"), ranks=2)
    roots = [f for f in report["findings"] if f["explained_by"] is None]
    noticed = next(f for f in report["findings"] if f["id"] == "cuda-error")
    assert noticed["ranks"] == [1] and message in noticed["cause"], report
    assert f"train.py:{line_of(FAULT, '# fault')}" in noticed["evidence"][0]["where"], noticed
    assert (done.code, report["exit_code"], report["exit_code_of"]) == (1, 1, "rank 1"), report
    if xid is None:  # a mistake of the program: the device is well
        assert roots == [noticed], report
        return
    fault = report["findings"][0]
    assert [fault] == roots and fault["id"] == "gpu-fault" and noticed["explained_by"] == "gpu-fault", report
    assert (fault["severity"], fault["confidence"], fault["ranks"]) == ("error", "certain", [1]), fault
    assert f"Xid {xid}" in fault["summary"] and "GPU-" in fault["summary"], fault

    seen = json.loads(box.run("top", "--once", "--json").out)
    assert [str(xid) in str(rank["xids"]) for rank in seen["ranks"]] == [False, True], seen
    looked = json.loads(box.run("preflight", "--no-allreduce", "--json").out)  # the device stays as it is
    (still,) = [f["summary"] for f in looked["findings"] if f["id"] == "gpu-fault"]
    assert "GPU 1 of" in still and {48: "ECC", 79: "fallen off the bus"}[xid] in still, still


@pytest.mark.one_gpu
def test_a_device_side_assert_is_a_cuda_error(gpus):
    """A real one on a real device; on the box it is planted in the kernel that would find the index."""
    faults = None if HARDWARE else {0: "device-assert kernel=index"}
    wrong = "table = torch.zeros(4, device='cuda')\ntable[torch.tensor([9], device='cuda')].sum().item()  # fault\n"
    done, report = gpus(faults=faults).launch(BEGIN + wrong)
    (found,) = report["findings"]
    assert (found["id"], found["ranks"], done.code, report["exit_code_of"]) == ("cuda-error", [0], 1, "rank 0"), report
    assert "cuda-assert" in found["cause"], found
    assert f"train.py:{line_of(BEGIN + wrong, '# fault')}" in found["evidence"][0]["where"], found


#: No collective: NCCL refuses two ranks on a device. Until three looks, which are ten seconds apart, have seen both.
CROWDED = """
import os, pathlib, time
import torch
run = pathlib.Path(os.environ["DISTDBG_RUN_DIR"])
def looks():
    return sum(path.read_text().count('"ranks": [0, 1]') for path in run.rglob("metrics.jsonl"))
torch.cuda.set_device(0)
layer = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
begin = time.time()
while looks() < 3 and time.time() < begin + 90:
    optimizer.zero_grad()
    layer(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    time.sleep(0.2)
"""


def test_a_throttled_device_and_ranks_that_share_one(gpus):
    """Device 1 is slow, too, but nobody is on it."""
    slow = [f"throttled device={d} clock=345 reason=hw-thermal" for d in (0, 1)]
    box = gpus(devices=2, memory="8G", faults={None: slow})
    done, report = box.launch(CROWDED, ranks=2)
    found = {f["id"]: f for f in report["findings"]}
    assert done.code == 0 and sorted(ids(report)) == ["gpu-shared-by-ranks", "gpu-throttled"], report
    assert found["gpu-throttled"]["ranks"] == found["gpu-shared-by-ranks"]["ranks"] == [0, 1], report
    throttled = found["gpu-throttled"]["summary"]
    assert "GPU 0 of" in throttled and "hardware thermal slowdown" in throttled and "91 °C" in throttled, throttled

    seen = json.loads(box.run("top", "--once", "--json").out)
    for rank in seen["ranks"]:  # both see the whole device, with two contexts of half a GiB
        assert (rank["gpu_busy"], rank["gpu_heat"], rank["gpu_total"]) == (100, 91, 8 << 30), rank
        assert 1 << 30 < rank["gpu_used"] < 2 << 30 and "hardware thermal slowdown" in rank["gpu_slowed"], rank


def test_preflight_reads_the_devices(gpus):
    """Device 1 is hot; on device 0 another program has memory. Without that, a row of the table has all devices."""
    faults = {None: ["throttled device=1 clock=345 reason=hw-thermal", "memory-taken device=0 bytes=3G pid=1"]}
    box = gpus(devices=2, memory="8G", faults=faults)
    done = box.run("preflight", "--no-allreduce", "--json")
    told = {f["id"]: f["summary"] for f in json.loads(done.out)["findings"] if f["id"].startswith("gpu-")}
    assert told.keys() == {"gpu-throttled", "gpu-memory-taken"}, done
    assert "GPU 1 of" in told["gpu-throttled"] and "hardware thermal slowdown, at 91" in told["gpu-throttled"], told
    assert "with 3.2 GB" in told["gpu-memory-taken"] and "GPU 0 of" in told["gpu-memory-taken"], told

    # Memory of a device with MIG instances may be that of another's instance.
    faults = {None: ["mig instances=2 device=0", "memory-taken device=0 bytes=3G pid=1"]}
    parted = gpus(devices=1, memory="8G", faults=faults).run("preflight", "--no-allreduce", "--json")
    assert not [f for f in json.loads(parted.out)["findings"] if f["id"].startswith("gpu-")], parted
    well = gpus(devices=2).run("preflight", "--no-allreduce")
    assert well.code == 0 and "pass  2 a node: NVIDIA H100 80GB HBM3\n" in well.out, well
