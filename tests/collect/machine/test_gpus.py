"""NVML through nvidia-ml-py's real interface, against a C library that says what a test wrote (tests/fake_nvml)."""

import json
import os
import subprocess
import sys

import pytest

from distdbg.collect.machine.gpus import devices
from tests.fake_nvml.library import fake_gpus

TWO = """
driver version=570.86.15
gpu uuid=GPU-aa name="NVIDIA H200" bus=00000000:19:00.0 total=1000 used=400 busy=97 temperature=61 power=650500 \
throttle=0x44 corrected=2 uncorrected=1 mig=0 nvlinks=1101
gpu uuid=GPU-bb name="NVIDIA H200" bus=00000000:3B:00.0 total=1000 used=0 busy=0 temperature=30 throttle=0x1
process gpu=0 pid=123 used=300
process gpu=0 pid=124
"""
READ = """
import dataclasses, json
from distdbg.collect.machine.gpus import Nvml, devices
with Nvml() as nvml:
    states = [dataclasses.asdict(s) for s in nvml.states()]
    print(json.dumps([states, nvml.because]))
with Nvml() as again:
    assert len(again.states()) == len(states)
"""


def read(folder, text, without=None, code=READ):
    environment = {**os.environ, **fake_gpus(folder, text, without)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_everything_that_is_read(tmp_path):
    (first, second), because = read(tmp_path, TWO)
    assert because == ""
    assert first == {
        "index": 0,
        "uuid": "GPU-aa",
        "name": "NVIDIA H200",
        "bus_id": "00000000:19:00.0",
        "instances": [],
        "memory_total": 1000,
        "memory_used": 400,
        "utilisation": 97,
        "temperature": 61,
        "power": 650.5,
        "throttle": ["power cap", "hardware thermal slowdown"],
        "ecc_corrected": 2,
        "ecc_uncorrected": 1,
        "processes": [{"pid": 123, "memory_used": 300}, {"pid": 124, "memory_used": None}],
        "nvlinks": 3,
        "unknown": {},
    }
    assert (second["throttle"], second["processes"], second["temperature"]) == ([], [], 30)
    assert second["ecc_corrected"] is None
    assert second["unknown"]["ecc_corrected"] == "this device does not support it"


@pytest.mark.parametrize(
    ("without", "expected"), [([], (900, 300)), (["nvmlDeviceGetMemoryInfo_v2"], (1000, 400))], ids=["new", "old"]
)
def test_memory_that_the_driver_reserves_is_not_used(tmp_path, without, expected):
    """An old driver counts it as used, and offers no other figure."""
    (gpu,), _ = read(tmp_path, "gpu uuid=GPU-aa total=1000 used=400 reserved=100", without)
    assert (gpu["memory_total"], gpu["memory_used"]) == expected


def test_mig_instances(tmp_path):
    text = "gpu uuid=GPU-aa mig=1\nmig gpu=0 uuid=MIG-1 total=20\nmig gpu=0 uuid=MIG-2 total=40\ngpu uuid=GPU-bb mig=0"
    (first, second), _ = read(tmp_path, text)
    assert [(i["uuid"], i["memory_total"]) for i in first["instances"]] == [("MIG-1", 20), ("MIG-2", 40)]
    assert second["instances"] == []


def test_a_lost_gpu_does_not_hide_the_others(tmp_path):
    (first, second), because = read(tmp_path, TWO + "error gpu=0 call=nvmlDeviceGetHandleByIndex code=15")
    assert first["unknown"] == {"device": "the GPU has fallen off the bus"}
    assert (second["uuid"], because) == ("GPU-bb", "")
    code = (
        "import json; from distdbg.collect.machine.gpus import devices; print(json.dumps([d.index for d in devices()]))"
    )
    assert read(tmp_path, (tmp_path / "gpus.txt").read_text(), code=code) == [1]


def test_one_call_that_is_not_permitted(tmp_path):
    (first, _), _ = read(tmp_path, TWO + "error call=nvmlDeviceGetComputeRunningProcesses code=4")
    assert first["processes"] is None
    assert first["unknown"] == {"processes": "no permission"}
    assert first["memory_used"] == 400


def test_an_old_driver_without_a_symbol(tmp_path):
    """The throttle reasons had another name before."""
    (first, _), _ = read(tmp_path, TWO, without=["nvmlDeviceGetCurrentClocksEventReasons"])
    assert first["throttle"] == ["power cap", "hardware thermal slowdown"]


@pytest.mark.parametrize(
    ("code", "says"), [(9, "driver is not loaded"), (18, "different versions"), (999, "Unknown"), (4, "no permission")]
)
def test_nvml_that_cannot_be_used(tmp_path, code, says):
    states, because = read(tmp_path, TWO + f"error call=nvmlInit code={code}")
    assert states == []
    assert says.lower() in because.lower() or "error of the fake" in because


def test_a_machine_without_the_library():
    code = "from distdbg.collect.machine.gpus import *\nwith Nvml() as n: print(n.states(), n.because)"
    code = "import ctypes\ndef none(name): raise OSError(name)\nctypes.CDLL = none\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "() no libnvidia-ml.so.1\n", done


def test_the_drivers_own_files_where_there_is_no_library(tmp_path):
    for bus, uuid in (("0000:3b:00.0", "GPU-bb"), ("0000:19:00.0", "GPU-aa")):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t NVIDIA A100\nIRQ: 1\nGPU UUID: \t {uuid}\n")
    from distdbg.collect.machine import gpus

    assert [(g.index, g.uuid, g.name) for g in gpus._from_proc(tmp_path)] == [
        (0, "GPU-aa", "NVIDIA A100"),
        (1, "GPU-bb", "NVIDIA A100"),
    ]
    assert gpus._from_proc(tmp_path / "missing") == ()


@pytest.mark.gpu
@pytest.mark.skipif(not os.path.exists("/dev/nvidiactl"), reason="not possible here: no NVIDIA driver")
def test_a_real_gpu():
    found = devices()
    assert found
    assert all(device.uuid.startswith("GPU-") for device in found)


def test_what_changes_is_read_alone_and_xids_are_heard(tmp_path):
    code = """
import dataclasses, json
from distdbg.collect.machine.gpus import Nvml
with Nvml() as nvml:
    why = nvml.watch_faults()
    print(json.dumps([[dataclasses.asdict(s) for s in nvml.figures()], why, [nvml.fault(0.01) for _ in range(3)]]))
"""
    text = TWO + "xid gpu=1 number=79\nxid gpu=0 number=13"
    (first, _), why, faults = read(tmp_path, text, code=code)
    assert (why, faults) == ("", [["GPU-bb", 79], ["GPU-aa", 13], None])
    assert (first["utilisation"], first["temperature"], first["nvlinks"], first["name"]) == (97, 61, None, None)
    _, why, faults = read(tmp_path, text + "\nerror call=nvmlEventSetCreate code=3", code=code)
    assert (why, faults) == ("this device does not support it", [None] * 3)
