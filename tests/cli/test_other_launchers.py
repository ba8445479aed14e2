"""`distdbg hang-dump` of jobs that other launchers have started: rank 1 of two stands in a function of its own.

Each runs in a process table of its own, so that `hang-dump` without arguments finds it, and no rank survives. Ray and
DeepSpeed are too large to install: tests/evidence/host/test_rank_processes.py has what their processes look like.
"""

import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs" / "launchers"
MULTI = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
ACCELERATE = ["-m", "accelerate.commands.accelerate_cli", "launch", *MULTI, "--dynamo_backend", "no"]
JOBS = {
    "spawn": [str(PROGRAMS / "spawned.py"), "PORT"],
    "accelerate": [*ACCELERATE, "--main_process_port", "PORT", str(PROGRAMS / "from_environment.py")],
    "lightning": [str(PROGRAMS / "lightning_fit.py")],
}
#: Starts the job, waits until rank 1 says that it stands (a rank that still waits for the store sleeps, too) and until
#: no thread of this process table has run for a second, so that rank 0 waits. Looks twice: without arguments, and by
#: the pid of the job.
LOOKS = """
import glob, json, subprocess, sys, time
def threads():
    for path in set(glob.glob("/proc/[0-9]*/task/*/stat")) - {"/proc/1/task/1/stat"}:
        try:
            yield path, open(path).read().rpartition(")")[2].split()
        except OSError:
            pass
def cpu_times():  # of each thread, None while any runs
    fields = dict(threads())
    running = any(words[0] == "R" for words in fields.values())
    return None if running else {path: words[11:13] for path, words in fields.items()}
job = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
assert any("the shard is being read" in line for line in job.stdout)
quiet, before = 0, None
while quiet < 10:
    now = cpu_times()
    quiet, before = quiet + 1 if now is not None and now == before else 0, now
    time.sleep(0.1)
for words in ([], ["--pid", str(job.pid)]):
    for _ in range(3):  # on a crowded machine a rank that waits seems to go on now and then
        done = subprocess.run([sys.executable, "-m", "distdbg", "hang-dump", "--json", "--native", "0", *words],
                              stdout=subprocess.PIPE, text=True)
        report = json.loads(done.stdout)
        if done.returncode == 10:
            break
        (part,) = glob.glob(max(glob.glob("distdbg-dumps/*/")) + "nodes/*")
        for rank in json.load(open(part))["ranks"]:
            for look in rank["looks"]:
                seen = [look["process"].get(name) for name in ("state", "syscall", "cpu_s", "read", "written")]
                print(rank["rank"], look.get("switched"), look.get("rested"), *seen, look["stacks"], file=sys.stderr)
    found = [(f["id"], f["ranks"], f["summary"]) for f in report["findings"]]
    print(json.dumps([done.returncode, found, report["unknown"]]), flush=True)
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("launcher", JOBS)
def test_a_job_of_another_launcher(launcher, tmp_path, need):
    unshare = need("unshare", "util-linux")
    alone = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("not possible here: a process table of its own takes root")
    command = [*alone, sys.executable, "-c", LOOKS]
    words = [free_port() if word == "PORT" else word for word in JOBS[launcher]]
    environment = os.environ | {"FAULT": "hang"}
    done = subprocess.run(
        [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) == 2, done
    if " futex " in done.stderr:
        warnings.warn(f"a rank that waits seemed to go on: {done.stderr}", stacklevel=1)
    for code, findings, _ in looks:
        assert code == 10, (looks, done.stderr)
        assert [(name, ranks) for name, ranks, _ in findings] == [("stuck-in-python", [1])]
        assert "steps.py:16" in findings[0][2]
