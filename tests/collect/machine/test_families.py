"""A process with those below it: what counts as the CPU time of its children."""

import os
import signal
import subprocess
import sys
import time

import pytest

from distdbg.collect.machine.families import Relative, child_s_of, cpu_of, family

#: A command whose child computes until it is ended.
COMPILES = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"


@pytest.fixture
def command():
    child = subprocess.Popen([sys.executable, "-c", COMPILES], start_new_session=True)
    yield child
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_a_grandchild_that_computes_is_a_busy_child(command):
    def busy():
        return child_s_of(family(os.getpid()))

    before, end = busy(), time.monotonic() + 30
    while busy() < before + 1.0:
        assert time.monotonic() < end
        time.sleep(0.05)
    found = {one.pid: one for one in family(os.getpid())}
    grandchild = next(one for one in found.values() if one.parent == command.pid)
    assert found[command.pid].parent == os.getpid()
    assert grandchild.own_s > 0


def test_what_belongs_to_another_rank_is_left_out(command):
    assert command.pid not in [one.pid for one in family(os.getpid(), apart={command.pid})]


def test_workers_of_a_loader_are_no_busy_children():
    rank = Relative(1, 0, "python", "S", 5.0, 2.0, 1.0)
    worker = Relative(2, 1, "pt_data_worker", "R", 30.0, 0.0, 0.0, loads=True)
    compiler = Relative(3, 1, "cc1plus", "R", 4.0, 0.0, 0.5)
    assert child_s_of([rank, worker, compiler]) == 6.5
    assert cpu_of([rank, worker, compiler]) == 41.0


def test_a_process_that_is_gone_has_no_family():
    assert family(2**22 + 1) == []
    assert child_s_of([]) == 0.0


def test_how_a_process_ended_that_nobody_has_waited_for():
    with subprocess.Popen(["sh", "-c", "exit 3"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        found = {one.pid: one.exit_code for one in family(os.getpid())}
    assert (found[child.pid], found[os.getpid()]) == (3, None)
