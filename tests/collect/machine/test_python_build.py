"""Which build of Python a process runs: real processes, of a program with the data of each build."""

import shutil
import struct
import subprocess
import sys

import pytest

from distdbg.collect.machine import pyspy
from distdbg.collect.machine.pyspy import is_free_threaded
from distdbg.protocol.dump import NoStacks


@pytest.fixture
def start_build(tmp_path, need):
    """Start a process whose program contains what CPython 3.14 of this kind has at the start of its runtime state."""
    processes = []

    def start(version, free_threaded):
        program = tmp_path / f"program-{len(processes)}"
        shutil.copy(need("sleep", "coreutils"), program)
        with program.open("ab") as file:  # the string alone, as the comparison in remote_debug.h has it, is no header
            file.write(b"xdebugpy\0string" + b"xdebugpy" + struct.pack("<QQ", version, free_threaded))
        processes.append(subprocess.Popen([program, "100"]))
        return processes[-1].pid

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("version", "free_threaded"), [(0x030D00F0, 1), (0x030E0AF0, 1), (0x030E0AF0, 0)])
def test_build_is_read_from_the_runtimes_data(start_build, version, free_threaded):
    assert is_free_threaded(start_build(version, free_threaded)) is bool(free_threaded)


def test_this_python_is_what_it_says():
    has_gil = "free-threading" not in sys.version
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert is_free_threaded(process.pid) is not has_gil


def test_process_that_is_gone_is_not_free_threaded():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not is_free_threaded(process.pid)


def test_stacks_of_free_threaded_python_are_refused(start_build):
    pid = start_build(0x030E0AF0, 1)
    with pytest.raises(pyspy.PySpyFailed, match="free-threaded Python") as error:
        pyspy.stacks(pid, within_s=20)
    assert error.value.kind is NoStacks.FREE_THREADED
    assert "free-threaded Python" in pyspy.probe(pid)["because"]
