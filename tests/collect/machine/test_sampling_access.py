"""What can be looked into: the kernel's own answer, and the words for a refusal."""

import errno
import json
import os
import subprocess
import sys

import pytest

from distdbg.collect.machine.pyspy import probe, why_refused

PTRACE = 1 << 19


def test_a_child_can_be_looked_into_and_is_not_touched():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = probe(child.pid)
        assert found["ptrace"], found
        assert found["because"] == ("" if found["pyspy"] else "py-spy is not installed")
        assert child.poll() is None
    finally:
        child.communicate(b"\n")


def test_one_that_is_gone_is_no_refusal():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert probe(ended.pid)["ptrace"]


def test_another_users_process_refuses_who_has_no_capability():
    """As root the question is asked by a child that becomes nobody; else process 1 is another user's."""
    reader, writer = os.pipe()
    root, asked = os.getuid() == 0, os.getpid() if os.getuid() == 0 else 1
    child = os.fork()
    if child == 0:
        try:
            if root:
                os.setuid(65534)
            os.write(writer, json.dumps(probe(asked)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found = json.loads(answer.read())
    assert (found["ptrace"], found["because"]) == (False, "the ranks belong to another user")


@pytest.mark.parametrize(
    ("number", "scope", "capabilities", "same_user", "says"),
    [
        (errno.ENOSYS, 0, 0, True, "seccomp"),
        (errno.EPERM, 1, 0, False, "another user"),
        (errno.EPERM, 3, PTRACE, True, "until the next boot"),
        (errno.EPERM, 0, PTRACE, True, "--cap-add SYS_PTRACE"),
        (errno.EPERM, 2, 0, True, "ptrace_scope is 2"),
        (errno.EPERM, 1, 0, True, "worker side"),
        (errno.EPERM, 0, 0, True, "not dumpable"),
        (errno.EACCES, None, 0, True, "not dumpable"),
    ],
)
def test_why_it_is_refused(number, scope, capabilities, same_user, says):
    assert says in why_refused(number, scope, capabilities, same_user=same_user)
