"""A capture of a real job in which one rank sleeps and three wait for it; nothing of the job changes by it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.collect.machine import procfs
from distdbg.collect.machine.process_look import look
from distdbg.collect.runs.dump_files import load_dump
from distdbg.launch.watch import capture
from distdbg.protocol.dump import CaptureRequest
from distdbg.rundir import list_runs

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[2] / "programs" / "hangs" / "sleeps_in_step.py"
SLEEPER = 2


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


@pytest.fixture
def job(tmp_path):
    """rank -> pid of a job that has come to its hang."""
    words = ["--nodes", "2", "--nproc-per-node", "2", "--grace", "1", str(PROGRAM)]
    process = subprocess.Popen(
        [sys.executable, "-m", "distdbg", "launch", *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ranks():
        found = {}
        for run in list_runs(tmp_path / "distdbg-runs"):
            for path in run.path.glob("attempts/1/nodes/*/events.jsonl"):
                for line in path.read_text().splitlines():
                    event = json.loads(line)
                    if event["event"] == "rank-started":
                        found[event["rank"]] = event["pid"]
        return found if len(found) == 4 else None

    pids = wait_until(ranks)
    wait_until(lambda: look(pids[SLEEPER]).get("syscall") == "clock_nanosleep")
    yield pids
    process.terminate()
    assert process.wait(60) == 128 + 15


TRACES = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print(libc.ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)  # PTRACE_SEIZE
sys.stdin.read()
"""


def test_rank_that_another_process_traces_is_named_with_the_tracer(job, tmp_path):
    targets = [{"rank": rank, "pid": pid, "stem": None} for rank, pid in sorted(job.items())]
    request = {"folder": str(tmp_path / "dump"), "node_rank": 0, "host": "here", "looks": 1, "interval": 0.2,
               "within": 60, "native": 1, "targets": targets}  # fmt: skip
    line = [sys.executable, "-c", TRACES, str(job[SLEEPER])]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracer:
        if tracer.stdout.readline() != b"0\n":
            pytest.skip("not possible here: a process may not trace another")
        data = json.dumps(request).encode()
        subprocess.run([sys.executable, Path(capture.__file__)], input=data, check=True, timeout=120)
        (tmp_path / "dump" / "manifest.json").write_text(json.dumps({"world_size": 4}))
        _, unknown = load_dump(tmp_path / "dump", "dump")
        assert [item.what for item in unknown] == [f"the native frames of rank {SLEEPER}"], unknown
        assert unknown[0].because.startswith(f"process {tracer.pid} (python"), unknown
        tracer.stdin.close()


def test_every_rank_is_accounted_for_and_goes_on_as_before(job, tmp_path):
    folder = tmp_path / "dump"
    targets = [
        {"rank": rank, "pid": pid, "stem": f"{procfs.environment_of(pid)['DISTDBG_NODE_DIR']}/{rank:05d}"}
        for rank, pid in sorted(job.items())
    ]
    request = {"folder": str(folder), "node_rank": 0, "host": "here", "looks": 2, "interval": 0.2, "within": 60,
               "native": 1, "targets": targets}  # fmt: skip
    program = Path(capture.__file__)
    subprocess.run([sys.executable, program], input=json.dumps(request).encode(), check=True, timeout=120)
    part = json.loads((folder / "nodes" / "0000.json").read_text())
    assert [rank["rank"] for rank in part["ranks"]] == [0, 1, 2, 3]
    for rank in part["ranks"]:
        first, second = rank["looks"]
        assert first["page"]["heard"] == second["page"]["heard"] > 0
        assert first["page"]["quiet_s"] < second["page"]["quiet_s"]
        assert first["process"]["state"] in "SR"
        threads = json.loads((folder / second["stacks"]["file"]).read_text())
        names = [frame["name"] for t in threads if t["os_thread_id"] == rank["pid"] for frame in t["frames"]]
        assert ("fetch_schedule" in names) == (rank["rank"] == SLEEPER), names
        entries = json.loads((folder / second["recorder"]["file"]).read_text())["entries"]
        open_ones = [e["profiling_name"] for e in entries if not e["retired"]]
        assert bool(open_ones) == (rank["rank"] != SLEEPER), open_ones
    native = [r["rank"] for r in part["ranks"] if "native" in r["looks"][-1]]
    assert native == [SLEEPER], "its stack is the rarest"
    assert str(PROGRAM) in part["sources"]
    assert not (folder / "calls").exists(), "it calls nothing of torch.distributed by itself"
    assert {look(pid).get("state") for pid in job.values()} <= {"S", "R"}, "one was left stopped"


def test_a_rank_that_only_crawls_is_not_held_up_for_its_c_frames():
    def seen(rank, *steps):
        stack = [{"pid": rank, "os_thread_id": rank, "frames": [{"filename": "train.py", "line": rank}]}]
        looks = [{"page": {"step": step, "user_step": 0}} for step in steps]
        return capture.Target(rank, rank, "stem", looks, stack)

    made = capture.Capture(CaptureRequest(folder="/nowhere", node_rank=0, host="here", targets=[]))
    made.targets = [seen(1, 7, 8), seen(2, 7, 7), seen(3, 7)]
    assert [target.rank for target in made._rarest(3)] == [2, 3]


def test_a_rank_that_is_gone_is_said_to_be(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    request = {"folder": str(tmp_path), "node_rank": 1, "host": "here", "looks": 1, "within": 20,
               "targets": [{"rank": 5, "pid": ended.pid, "stem": str(tmp_path / "00005")}]}  # fmt: skip
    path = capture.Capture(CaptureRequest.from_record(request)).run()
    (seen,) = json.loads(path.read_text())["ranks"][0]["looks"]
    assert seen["process"] == {}
    assert seen["page"] is None
    assert seen["stacks"]["failed"]
    assert seen["recorder"]["failed"].startswith("this rank serves none")
