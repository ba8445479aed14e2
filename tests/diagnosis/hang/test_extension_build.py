"""Builds of C++ extensions: a compiler that works, one that stands, a lock file that nobody holds."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.stacks.threads import Frame
from distdbg.protocol.dump import Descendant, LockFile
from tests.hang_cases import evidence, made, user, waits
from tests.made_dump import BOOT, TORCH

LIB = "/usr/lib/python3.11"
STARTS = {"heard": 0, "step": 0, "calls": 0, "quiet_s": 61.0}
JIT = Frame("_jit_compile", f"{TORCH}/utils/cpp_extension.py", 2400, {"name": '"my_ops"'})
WAITS = (Frame("FileBaton.wait", f"{TORCH}/utils/file_baton.py", 50), JIT, user(12), *BOOT)
BUILDS = (
    Frame("Popen.communicate", f"{LIB}/subprocess.py", 1196),
    Frame("_run_ninja_build", f"{TORCH}/utils/cpp_extension.py", 2893),
    JIT,
    user(12),
    *BOOT,
)


def waiting(*, holders=(), age_s=7200.0):
    """A rank that finds the lock file of an extension."""
    lock = LockFile(path="/cache/my_ops/lock", age_s=age_s, holders=list(holders))
    return with_fields(made(WAITS, call="clock_nanosleep", page=STARTS), lock=(lock, lock))


def building(*cpu_s):
    """A rank whose ninja has one compiler; its CPU seconds at each look."""
    ninja = Descendant(pid=50, parent=1000, name="ninja", state="S", cpu_s=0.1)
    below = [(ninja, Descendant(pid=51, parent=50, name="cc1plus", state="S", cpu_s=s)) for s in cpu_s]
    return with_fields(made(BUILDS, call="read", page=STARTS), below=below)


def with_fields(make, **fields):
    """The rank's looks with fields added, a value for each look."""

    def build(rank):
        dump = make(rank)
        looks = [
            replace(one, **{name: values[number] for name, values in fields.items()})
            for number, one in enumerate(dump.looks)
        ]
        return replace(dump, looks=tuple(looks))

    return build


def found_in(ranks, **options):
    report = build_report(evidence(ranks, **options))
    (found,) = report.findings
    return found


def test_a_compiler_that_works_is_named_and_is_no_error():
    found = found_in({0: building(3.0, 3.9), 1: waiting(holders=["pid 1000 (python)"])}, reason="start", quiet_s=61.0)
    assert (found.id, found.severity, found.ranks, found.confidence) == ("extension-build", "warning", (0,), "certain")
    assert "waits for ninja, 1 busy compiler" in found.summary
    assert "rank 1 waits for its lock file" in found.summary


def test_one_that_stands_is_a_hang_of_the_rank_that_builds():
    found = found_in({0: building(3.0, 3.0), 1: waiting(holders=["pid 1000 (python)"])})
    assert (found.id, found.severity, found.ranks) == ("extension-build", "error", (0,))
    assert "0 busy compilers" in found.summary


@pytest.mark.parametrize(("reason", "severity"), [("start", "warning"), ("hang", "error")])
def test_a_lock_file_without_an_owner(reason, severity):
    found = found_in(dict.fromkeys(range(2), waiting()), reason=reason)
    assert (found.id, found.severity, found.ranks, found.confidence) == ("extension-build", severity, (0, 1), "likely")
    assert "/cache/my_ops/lock, 2 hours old, which no process of its node holds" in found.summary


def test_a_lock_file_of_another_job_that_lives():
    found = found_in(dict.fromkeys(range(2), waiting(holders=["pid 7 (python)"])), quiet_s=None)
    assert (found.severity, "dead" in found.summary) == ("warning", False)
    assert "held by pid 7 (python)" in found.summary


def test_ranks_that_wait_in_a_collective_for_the_one_that_builds():
    found = found_in({0: building(3.0, 3.0), 1: waits(9), 2: waits(9)})
    assert (found.id, found.ranks) == ("extension-build", (0,))
    assert "Ranks 1-2 wait in" in found.cause
