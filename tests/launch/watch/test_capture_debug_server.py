"""A rank that distdbg did not start, whose script runs torch's worker server on a port: recorder and stacks."""

import json
import subprocess
import sys

import pytest

from distdbg.collect.machine import pyspy
from distdbg.collect.machine.pyspy import PySpyFailed
from distdbg.launch.watch.capture import Capture
from distdbg.protocol.dump import CaptureRequest

RANK = """
import sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
server = _WorkerServer("::", 0)
dist.all_reduce(torch.ones(3))
def fetch():
    print("ready", flush=True)
    time.sleep(600)
fetch()
"""


@pytest.fixture
def rank(tmp_path):
    """The pid of a process that hangs in `fetch`."""
    words = [sys.executable, "-c", RANK, str(tmp_path / "store")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


def test_recorder_and_refused_stacks_come_from_the_debug_server(rank, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PySpyFailed("Operation not permitted")

    monkeypatch.setattr(pyspy, "stacks", refuse)
    request = {"folder": str(tmp_path / "dump"), "node_rank": 0, "host": "here", "looks": 2, "interval": 0.1,
               "within": 30, "targets": [{"rank": 0, "pid": rank, "stem": None}]}  # fmt: skip
    part = json.loads(Capture(CaptureRequest.from_record(request)).run().read_text())
    (looks,) = [seen["looks"] for seen in part["ranks"]]
    for look in looks:
        assert look["stacks"]["told_by_itself_because"] == "Operation not permitted"
        (operation,) = json.loads((tmp_path / "dump" / look["recorder"]["file"]).read_text())["entries"]
        assert operation["profiling_name"] == "gloo:all_reduce" and operation["input_sizes"] == [[3]]
    threads = json.loads((tmp_path / "dump" / looks[0]["stacks"]["file"]).read_text())
    (main,) = [thread for thread in threads if thread["os_thread_id"] == rank]
    assert [(f["name"], f["filename"]) for f in main["frames"]] == [("fetch", "<string>"), ("<module>", "<string>")]
