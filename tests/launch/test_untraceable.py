"""Ranks that nobody may trace: they tell themselves where they stand, and the verdict is the same."""

import json
import os
import subprocess
import sys
import threading

import pytest

from distdbg.evidence.stacks.threads import main_thread, read_threads
from distdbg.rundir import list_runs
from distdbg.worker.threads import write_stacks

HANGS = """
import ctypes, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: to be traced by root's capability alone
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(torch.ones(1))


def wait_for_what_never_comes():
    while True:
        time.sleep(0.5)


if dist.get_rank() == 1:
    wait_for_what_never_comes()
dist.barrier()
"""


def test_what_a_rank_tells_is_read_as_py_spys(tmp_path):
    ready, done = threading.Event(), threading.Event()

    def stands_here():
        ready.set()
        done.wait()

    thread = threading.Thread(target=stands_here, name="second")
    thread.start()
    ready.wait()
    write_stacks(str(tmp_path / "stacks"))
    done.set()
    thread.join()
    threads = read_threads(json.loads((tmp_path / "stacks").read_text()))
    (second,) = [t for t in threads if t.name == "second"]
    assert second.os_id not in (0, os.getpid())
    assert [f.function.rpartition(".")[2] for f in second.user_frames] == ["stands_here"]
    main = main_thread(threads, os.getpid())
    assert main.frames[-1].file and any("what_a_rank_tells" in f.function for f in main.frames)


@pytest.mark.slow
def test_a_hang_of_ranks_that_may_not_be_traced_is_explained(tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    less = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"] if os.geteuid() == 0 else []
    words = ["--nproc-per-node", "2", "--hang-timeout", "4", "--on-hang", "kill", "--grace", "2", "hangs.py"]
    done = subprocess.run(
        [*less, sys.executable, "-m", "distdbg", "launch", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 75, done.stderr
    assert done.stderr.count("py-spy may not sample the ranks") == 1, done.stderr
    run = list_runs(tmp_path / "distdbg-runs")[-1]
    report = json.loads(run.report_json.read_text())
    first = report["findings"][0]
    assert first["ranks"] == [1], report
    assert "wait_for_what_never_comes" in json.dumps(first), first
    (dump,) = run.attempt(1).dumps()
    for rank in json.loads(next(dump.glob("nodes/*.json")).read_text())["ranks"]:  # of each, one look in time is enough
        assert any("told_by_itself_because" in look["stacks"] for look in rank["looks"]), rank
