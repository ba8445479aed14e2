"""The environment of a process as it has it now, which `os.environ` of a running rank has changed."""

import os
import shutil
import subprocess
import sys

import pytest

from distdbg.collect.machine.live_environment import live_environment

CHANGES = (
    "import os, sys; os.environ |= {'RANK': '3', 'LONG': 'x' * 9000}; del os.environ['GONE'];"
    "print('up', flush=True); sys.stdin.read()"
)


def interpreters():
    """The one of the tests, and the system's, whose addresses may be fixed."""
    found = [sys.executable, shutil.which("python3", path="/usr/bin:/bin")]
    return list(dict.fromkeys(path for path in found if path))


@pytest.mark.parametrize("python", interpreters())
def test_what_a_process_has_set_itself(python):
    environment = os.environ | {"GONE": "1", "STAYS": "=a=b"}
    with subprocess.Popen(
        [python, "-c", CHANGES], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        found = live_environment(process.pid)
        process.stdin.close()
    assert (found["RANK"], found["STAYS"], len(found["LONG"])) == ("3", "=a=b", 9000)
    assert "GONE" not in found


def test_a_process_that_is_gone_or_has_no_memory():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert live_environment(process.pid) is None
    assert live_environment(2) is None
