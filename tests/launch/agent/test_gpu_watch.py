"""The process beside the agent that asks NVML, against a library that says what a test wrote (tests/fake_nvml)."""

import json
import os
import subprocess
import sys

import pytest

from distdbg.launch.agent import gpu_watch
from distdbg.launch.agent.gpu_watch import GpuWatch, may_have_gpus
from distdbg.launch.io.loop import Loop
from distdbg.rundir import RUNS_FOLDER, list_runs
from tests.cli.test_memory_snapshot import wait_for
from tests.fake_nvml.library import fake_gpus

TWO = """gpu uuid=GPU-aa total=1000 used=400 busy=97 temperature=61 power=650500 throttle=0x44 uncorrected=0 mig=0
gpu uuid=GPU-bb total=1000 used=0 busy=0 temperature=30 throttle=0x0
process gpu=0 pid=123 used=300
"""
TRAIN = """
import pathlib, time
import distdbg
while not pathlib.Path("stop").exists():
    distdbg.tick()
    time.sleep(0.05)
"""


@pytest.fixture
def watch(tmp_path, monkeypatch):
    loop, faults, made = Loop(), [], []

    def begin(text):
        for name, value in fake_gpus(tmp_path, text).items():
            monkeypatch.setenv(name, value)
        watch = GpuWatch(loop, lambda: dict(begin.ranks), lambda *fault: faults.append(fault))
        made.append(watch)
        watch.start()
        assert loop.turn_until(watch.figures, 30.0)
        return watch

    begin.loop, begin.faults, begin.file, begin.ranks = loop, faults, tmp_path / "gpus.txt", {4: 123, 5: 124}
    yield begin
    for one in made:
        one.close()
        assert one._child.poll() is not None


def test_figures_bear_the_ranks_whose_processes_are_there(watch):
    begun = watch(TWO)
    (first,) = begun.figures()["gpus"]  # of the other nobody of this job makes use
    assert first == {
        "index": 0, "memory_total": 1000, "memory_used": 400, "utilisation": 97, "temperature": 61, "power": 650.5,
        "throttle": ["power cap", "hardware thermal slowdown"], "ecc_uncorrected": 0, "ranks": [4],
    }  # fmt: skip
    lost = "error call=nvmlDeviceGetHandleByIndex code=15 gpu=0\n"
    watch.file.write_text(f"{TWO}{lost}xid gpu=1 number=13\n")  # the Xid brings the next look at once
    assert watch.loop.turn_until(lambda: "because" in begun.figures()["gpus"][0], 30.0)
    assert begun.figures()["gpus"] == [{"index": 0, "because": "the GPU has fallen off the bus", "ranks": [4]}]


def test_others_on_a_rank_s_device_are_named(watch):
    begun = watch(f"{TWO}process gpu=0 pid={os.getpid()} used=50\nprocess gpu=0 pid=999999999 used=60\n")
    (first,) = begun.figures()["gpus"]
    assert [(p["pid"], p["memory_used"]) for p in first["others"]] == [(999999999, 60), (os.getpid(), 50)]
    assert first["others"][0]["command"] == "" and first["others"][1]["command"]


def test_a_rank_that_has_ended_since_the_look_is_no_other_process(watch):
    begun = watch(TWO)
    watch.ranks.clear()
    (first,) = begun.figures()["gpus"]
    assert first["ranks"] == [4] and "others" not in first


def test_where_processes_are_not_shown_all_that_may_be_seen_count(watch, monkeypatch):
    begun = watch(TWO.replace("pid=123", "pid=999"))
    assert [(gpu["index"], gpu["ranks"]) for gpu in begun.figures()["gpus"]] == [(0, []), (1, [])]
    for visible, left in (("1", [1]), ("GPU-aa", [0]), ("", []), ("MIG-x", [0, 1])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [gpu["index"] for gpu in begun.figures()["gpus"]] == left


def test_an_xid_is_heard_at_once(watch):
    begun = watch(TWO)
    watch.file.write_text(TWO + "xid gpu=1 number=48\nxid gpu=0 number=79\n")  # the first is of another job's
    assert watch.loop.turn_until(lambda: watch.faults, gpu_watch._SILENT_S)
    assert watch.faults == [("GPU-aa", 79, [4])]
    xids = [{"index": 0, "uuid": "GPU-aa", "xid": 79, "ranks": [4], "count": 1}]
    assert begun.figures()["xids"] == xids
    begun._newest, begun._because = [], "the NVIDIA driver is not loaded"
    assert begun.figures()["xids"] == xids, "it stands there when the device is gone"


def test_a_driver_that_does_not_answer_is_said_and_not_waited_for(watch, monkeypatch):
    begun = watch(TWO)
    monkeypatch.setattr(gpu_watch, "_SILENT_S", -1.0)
    assert begun.figures()["gpus"] == [] and "NVML has not answered for" in begun.figures()["gpus_because"]


def test_without_a_driver_it_says_why_and_ends(watch):
    begun = watch(TWO + "error call=nvmlInit code=9")
    assert begun.figures() == {"gpus": [], "gpus_because": "the NVIDIA driver is not loaded"}
    assert begun._child.wait(30) == 0


def test_a_machine_without_a_driver_starts_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_watch, "_DEVICES", (str(tmp_path / "nvidiactl"),))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert not may_have_gpus()
    (tmp_path / "nvidiactl").touch()
    assert may_have_gpus()


@pytest.mark.slow
def test_a_job_has_its_gpus_in_its_figures_and_a_fault_in_its_report(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    environment = {**os.environ, **fake_gpus(tmp_path, TWO), "FAKE_NVML": str(tmp_path / "gpus.txt")}
    command = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "train.py"]
    job = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def lines(name):
        runs = list_runs(tmp_path / RUNS_FOLDER)
        files = [getattr(node, name) for run in runs for attempt in run.attempts() for node in attempt.nodes()]
        return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]

    try:
        wait_for(lambda: sum(e["event"] == "rank-started" for e in lines("events")) == 2)
        pid = next(e["pid"] for e in lines("events") if e["event"] == "rank-started" and e["rank"] == 1)
        (tmp_path / "gpus.txt").write_text(TWO + f"process gpu=1 pid={pid}\n")
        wait_for(lambda: any([gpu["ranks"] for gpu in line.get("gpus", ())] == [[1]] for line in lines("metrics")))
        (tmp_path / "gpus.txt").write_text(TWO + f"process gpu=1 pid={pid}\nxid gpu=1 number=79\nxid gpu=1 number=13\n")
        wait_for(lambda: sum(e["event"] == "gpu-xid" for e in lines("events")) == 2)
    finally:
        (tmp_path / "stop").touch()
        assert job.wait(timeout=60) == 0
    report = json.loads(list_runs(tmp_path / RUNS_FOLDER)[0].report_json.read_text())
    (found,) = [finding for finding in report["findings"] if finding["id"] == "gpu-fault"]
    assert (found["severity"], found["ranks"]) == ("warning", [1]) and "Xid 79 (off the bus)" in found["summary"]
