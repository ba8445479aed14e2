"""What the kernel says of a process that waits for something real."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from distdbg.collect.machine.process_look import look


@pytest.fixture
def start():
    """start(body) -> a Python process that runs `body`, has said "ready", and is killed at the end."""
    started = []

    def call(body):
        code = f"print('ready', flush=True)\n{body}"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def look_until(pid, wanted, seconds=10):
    deadline = time.monotonic() + seconds
    while not wanted(seen := look(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert wanted(seen), seen
    return seen


def test_a_sleeper_and_its_numbers(start):
    sleeps = ("clock_nanosleep", "select", "pselect6")  # the last two up to Python 3.10
    body = "import time; time.sleep(100)"
    seen = look_until(start(body).pid, lambda s: s.get("syscall") in sleeps and s["state"] == "S")
    assert seen["threads"] == 1
    assert 1 << 20 < seen["rss"] < 1 << 30
    assert seen["cpu_s"] >= 0


def test_nccl_without_named_threads(start, tmp_path):
    """nccl2 names no thread: the driver's file is open and NCCL's library is mapped, without a group of gloo."""
    (tmp_path / "libnccl.so.2").write_bytes(bytes(4096))
    (tmp_path / "nvidia-uvm").touch()
    libraries = f"import mmap; nccl = open('{tmp_path}/libnccl.so.2', 'r+b'); m = mmap.mmap(nccl.fileno(), 4096)\n"
    driver = f"f = open('{tmp_path}/nvidia-uvm')\n"
    gloo = "open('/proc/self/comm', 'w').write('pt_gloo_runloop')\n"
    cases = {libraries: False, driver: False, libraries + driver: True, libraries + driver + gloo: False}
    for body, wanted in cases.items():
        ends = f"{body}print('set up', flush=True)\nimport time; time.sleep(100)"
        process = start(ends)
        assert process.stdout.readline() == b"set up\n"
        assert look(process.pid).get("nccl", False) is wanted, body


def test_who_reads_a_pipe_is_said_to(start):
    seen = look_until(start("import sys; sys.stdin.read()").pid, lambda s: s.get("syscall") == "read")
    assert seen["target"] == "pipe"


def test_a_socket_is_named_by_its_peer(start):
    body = """
import socket
server = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(server.getsockname())
print(server.getsockname()[1], flush=True)
s.recv(1)
"""
    process = start(body)
    port = int(process.stdout.readline())
    seen = look_until(process.pid, lambda s: s.get("syscall") == "recvfrom")
    assert seen["target"] == f"socket to 127.0.0.1:{port}"


def test_a_lock_names_its_holder(start, tmp_path):
    path = tmp_path / "lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = start(f"import fcntl; fcntl.flock(open({str(path)!r}, 'w'), fcntl.LOCK_EX)")
        seen = look_until(process.pid, lambda s: s.get("syscall") == "flock")
    assert seen["target"].startswith(f"file {path}, locked by pid {os.getpid()} (")
    assert seen["holders"] == [os.getpid()]


def test_of_several_locks_on_ranges_only_the_one_in_the_way_counts(start, tmp_path):
    path = tmp_path / "lock"
    body = f"import fcntl, time; f = open({str(path)!r}, 'a'); fcntl.lockf(f, fcntl.LOCK_EX, 5, 10)"
    with path.open("a") as held:
        fcntl.lockf(held, fcntl.LOCK_EX, 5, 0)
        holder = start(f"{body}; print(flush=True); time.sleep(100)")
        holder.stdout.readline()
        waiting = start(body)
        seen = look_until(waiting.pid, lambda s: s.get("syscall") == "fcntl")
    assert seen["holders"] == [holder.pid]


def test_stopped_and_gone(start):
    process = start("import time; time.sleep(100)")
    process.send_signal(signal.SIGSTOP)
    look_until(process.pid, lambda s: s.get("state") == "T")
    process.kill()
    process.wait()
    assert look(process.pid) == {}
