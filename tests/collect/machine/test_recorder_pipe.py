"""The recorder of a rank that somebody else started, by the pipe that torch makes for NCCL; a process plays torch."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from distdbg.collect.machine import recorder
from distdbg.collect.machine.recorder import NoPipe, RequestFailed, ask_by_pipe, written_before
from distdbg.collect.runs.dump_files import load_dump
from distdbg.launch.watch.capture import Capture
from distdbg.protocol.dump import CaptureRequest
from tests.evidence.recorder.test_log import dump, entry

GOOD = dump(entry(1, retired=True), entry(2), groups={"0": {"ranks": "[0, 1]"}})

#: As ProcessGroupNCCL's monitor does: a pipe of this name, looked at now and then, and a dump for whatever comes.
RANK = """
import os, pickle, sys, time
pipe, file, data = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
os.mkfifo(pipe)
descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
os.write(1, b"up\\n")
while True:
    try:
        asked = os.read(descriptor, 128)
    except BlockingIOError:
        asked = b""
    if asked:
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        with open(file, "wb") as out:
            for piece in (data[:40], data[40:]):
                out.write(piece)
                out.flush()
                time.sleep(0.1)
    time.sleep(0.02)
"""


@pytest.fixture
def rank(tmp_path):
    """`rank(stem, file, **environment)` starts one that makes `<stem>3.pipe`, and writes into `file` when asked."""
    started = []

    def start(stem, file, **environment):
        words = [sys.executable, "-c", RANK, f"{stem}3.pipe", str(file), pickle.dumps(GOOD, 2).hex()]
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environment}
        process = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"up\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_torch_writes_where_it_is_configured(rank, tmp_path):
    """A capture asks before its first look and at its last, and the dump is read as any recorder's."""
    pid = rank("ask_", "traces/rank_3", TORCH_NCCL_DEBUG_INFO_PIPE_FILE="ask_",
               TORCH_NCCL_DEBUG_INFO_TEMP_FILE="traces/rank_")  # fmt: skip
    request = {"folder": str(tmp_path / "dump"), "node_rank": 0, "host": "here", "looks": 2, "interval": 0.1,
               "within": 30, "targets": [{"rank": 3, "pid": pid, "stem": None}]}  # fmt: skip
    part = json.loads(Capture(CaptureRequest.from_record(request)).run().read_text())
    assert [look["recorder"] for look in part["ranks"][0]["looks"]] == [
        {"file": f"recorder/00003.{n}.pickle"} for n in (1, 2)
    ]
    found, unknown = load_dump(tmp_path / "dump", "dump")
    log = found.ranks[3].looks[1].recorder
    assert [(group.last, group.ranks) for group in log.groups.values()] == [(2, (0, 1))]
    assert not [missing for missing in unknown if "recorder" in missing.what]
    (tmp_path / "dump/recorder/00003.2.pickle").write_bytes(b"\x80\x02cos\nsystem\n.")
    assert "import" in next(
        missing.because for missing in load_dump(tmp_path / "dump", "dump")[1] if "recorder" in missing.what
    )


@pytest.mark.parametrize(
    ("environment", "file"),
    [({}, ".cache/torch/comm_lib_trace_rank_3"), ({"XDG_CACHE_HOME": "{}/xdg"}, "xdg/torch/comm_lib_trace_rank_3")],
    ids=["home", "xdg"],
)
def test_or_where_it_writes_by_itself(rank, tmp_path, environment, file):
    environment = {name: value.format(tmp_path) for name, value in environment.items()}
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(b"of an earlier time.")
    pid = rank(tmp_path / "p", tmp_path / file, TORCH_FR_DEBUG_INFO_PIPE_FILE=str(tmp_path / "p"), **environment)
    assert b"profiling_name" in ask_by_pipe(pid, 3).answer(10)


def test_what_a_timeout_left_is_read_of_this_process_alone(rank, tmp_path):
    """Where the job names the file, and it is newer than the process."""
    file = tmp_path / "at_timeout_3"
    told = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "at_timeout_")}
    pid = rank(tmp_path / "p", tmp_path / "x", **told)
    file.write_bytes(pickle.dumps(GOOD, 2))
    assert written_before(pid, 3) == pickle.dumps(GOOD, 2)
    os.utime(file, (1e9, 1e9))
    assert written_before(pid, 3) is None
    assert written_before(rank(tmp_path / "q", tmp_path / "x"), 3) is None


def test_why_there_is_none(rank, tmp_path):
    pid = rank(tmp_path / "p", tmp_path / "x")
    with pytest.raises(NoPipe) as none:
        ask_by_pipe(pid, 3)
    assert not str(none.value)  # this process does not use NCCL
    (tmp_path / "file3.pipe").write_text("mine")
    os.mkfifo(tmp_path / "unread3.pipe")
    for stem, why in (("file", "is no pipe"), ("unread", "No such device"), ("none", "No such file")):
        pid = rank(tmp_path / f"of_{stem}", tmp_path / "x", TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / stem))
        with pytest.raises(RequestFailed, match=why):
            ask_by_pipe(pid, 3)
    assert (tmp_path / "file3.pipe").read_text() == "mine"


def test_a_monitor_that_writes_nothing(rank, tmp_path):
    pid = rank(tmp_path / "p", tmp_path / "elsewhere", TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(tmp_path / "p"))
    with pytest.raises(RequestFailed, match=r"nothing was written within 0.5 s after p3.pipe was asked"):
        ask_by_pipe(pid, 3).answer(0.5)


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_the_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "file")
    assert recorder._whole(tmp_path / "file") is None
