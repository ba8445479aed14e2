import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from distdbg.collect.machine import procfs
from distdbg.launch.io import processes

ROOT = Path(__file__).parents[3]


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_an_orphan_is_adopted_by_the_subreaper_and_can_be_collected():
    code = """
import os, subprocess, sys, time
from distdbg.launch.io import processes
processes.become_subreaper()
wait_for_input = "import sys; sys.stdin.read(); sys.exit(7)"
start_one = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {wait_for_input!r}]).pid)"
parent = subprocess.Popen([sys.executable, "-c", start_one], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
orphan = int(parent.stdout.readline())
parent.stdin.close(); parent.wait()
end = time.monotonic() + 10
ended = []
while not ended and time.monotonic() < end:
    ended = processes.reap_adopted(set())
print(ended == [(orphan, 7)])
"""
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert out.stdout.strip() == "True", out.stderr


def test_a_child_dies_with_its_parent():
    code = """
import os, subprocess, sys, time
from distdbg.launch.io import processes
me = os.getpid()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                         preexec_fn=lambda: processes.die_with_parent(me))
print(child.pid, flush=True)
os.kill(me, 9)
"""
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    pid = int(out.stdout)
    wait_until(lambda: (procfs.stat_fields(pid) or ["Z"])[0] == "Z")


def test_catches_tells_a_handler_from_the_default():
    code = "import signal, sys; signal.signal(signal.SIGUSR1, print); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert processes.catches(child.pid, signal.SIGUSR1)
        assert not processes.catches(child.pid, signal.SIGUSR2)
        child.stdin.close()
    assert not processes.catches(child.pid, signal.SIGUSR1), "a process that is gone catches nothing"


def test_catches_reads_a_process_whose_name_is_no_text():
    """setproctitle's names are cut at 15 bytes, which may be in the middle of a character."""
    code = """
import signal, sys
open("/proc/self/comm", "wb").write("ééééééé".encode() + b"\\xc3")
signal.signal(signal.SIGUSR1, print)
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert Path(f"/proc/{child.pid}/comm").read_bytes().endswith(b"\xc3\n")
        assert processes.catches(child.pid, signal.SIGUSR1)
        child.stdin.close()


def test_start_ticks_and_environment_of_a_process_that_is_gone():
    child = subprocess.Popen(["true"])
    child.wait()
    assert procfs.start_ticks(child.pid) is None
    assert procfs.environment_of(child.pid) == {}
    assert procfs.start_ticks(os.getpid()) is not None
