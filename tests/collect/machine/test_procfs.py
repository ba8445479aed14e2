import os
import subprocess
import sys
import time

import pytest

from distdbg.collect.machine import procfs
from distdbg.collect.machine.process_look import look

LINUX = "rchar: 5\nwchar: 7\nsyscr: 1\nsyscw: 1\nread_bytes: 100\nwrite_bytes: 200\ncancelled_write_bytes: 0\n"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        pytest.param(LINUX, (105, 207), id="Linux"),
        pytest.param(LINUX.removeprefix("r"), None, id="a sandbox without rchar, as gVisor's"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_bytes_that_a_process_has_moved(monkeypatch, text, moved):
    monkeypatch.setattr(procfs.Path, "read_text", lambda _path, **_: text)
    assert procfs.io_bytes(1) == moved


def test_a_look_at_a_process_does_without_what_its_kernel_does_not_count(monkeypatch):
    plain = procfs.Path.read_text

    def of_a_sandbox(path, **how):
        return LINUX.removeprefix("r") if path.name == "io" else plain(path, **how)

    monkeypatch.setattr(procfs.Path, "read_text", of_a_sandbox)
    seen = look(os.getpid())
    assert seen["state"]
    assert "read" not in seen
    assert "written" not in seen


#: Waits for a byte, works for a while, which the scheduler interrupts, and waits again.
WORKS_AND_WAITS = """
import os, time
os.write(1, b"x")
while os.read(0, 1):
    until = time.thread_time() + 0.2
    while time.thread_time() < until:
        os.sched_yield()
    time.sleep(0)
"""


def test_switches_are_counted_once_the_thread_sleeps_again():
    command, pipe = [sys.executable, "-c", WORKS_AND_WAITS], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as job:
        job.stdout.read(1)
        before = procfs.settled_switches(job.pid, job.pid, time.monotonic() + 60)
        job.stdin.write(b"x")
        job.stdin.flush()
        settled = procfs.settled_switches(job.pid, job.pid, time.monotonic() + 60)
        assert procfs.switches(job.pid, job.pid) == settled >= before
        job.stdin.close()


def test_switches_are_unknown_of_a_thread_that_does_not_sleep():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as job:
        try:
            assert procfs.settled_switches(job.pid, job.pid, time.monotonic() + 0.2) is None
        finally:
            job.kill()
