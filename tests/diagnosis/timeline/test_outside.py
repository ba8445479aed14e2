"""What a rank waits for outside of its process: a child that computes or not, and lock files."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.timeline.life import busy_children
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.stacks.threads import Frame
from distdbg.protocol.dump import Descendant, LockFile
from tests.hang_cases import evidence, made, user, waits
from tests.made_dump import BOOT

LIB = "/usr/lib/python3.11"
RUNS = (Frame("Popen._try_wait", f"{LIB}/subprocess.py", 2011), user(12, "unpack"), *BOOT)
LOCKS = (Frame("acquire", "/env/lib/python3.11/site-packages/filelock/_api.py", 9), user(12), *BOOT)


def child(pid, name, state, cpu_s, parent=1001):
    return Descendant(pid=pid, parent=parent, name=name, state=state, cpu_s=cpu_s)


def with_looks(make, first, last):
    def build(rank):
        dump = make(rank)
        looks = (replace(dump.looks[0], **first), replace(dump.looks[1], **last))
        return replace(dump, looks=looks)

    return build


def runs(first, last):
    return with_looks(made(RUNS, call="wait4"), {"below": first}, {"below": last})


COMPUTES = runs((child(50, "unzstd", "R", 3.0),), (child(50, "unzstd", "S", 3.8),))
STANDS = runs((child(50, "sleep", "S", 0.0),), (child(50, "sleep", "S", 0.0),))


@pytest.mark.parametrize(("first", "last", "busy"), [
    (child(50, "x", "S", 1.0), child(50, "x", "S", 1.6), True),
    (child(50, "x", "S", 1.0), child(50, "x", "R", 1.1), False),  # wakes up now and then
    (child(50, "x", "R", 1.0), child(50, "x", "R", 1.0), True),  # waits for a CPU
    (child(49, "x", "R", 1.0), child(50, "x", "R", 0.1), True),  # was started in between
])  # fmt: skip
def test_which_children_compute(first, last, busy):
    assert bool(busy_children(runs((first,), (last,))(1))) is busy


def test_a_rank_that_waits_for_a_child_that_computes_may_go_on_by_itself():
    (found,) = build_report(evidence({0: waits(9), 1: COMPUTES}, quiet_s=None)).findings
    assert (found.id, found.severity, found.confidence, found.ranks) == ("stuck-on-io", "warning", "possible", (1,))
    assert "its child process unzstd (pid 50) to end, with 1 busy process (unzstd)" in found.summary


def test_a_child_that_stands_is_named_and_the_rank_is_hung():
    (found,) = build_report(evidence({0: waits(9), 1: STANDS}, quiet_s=70.0)).findings
    assert (found.id, found.severity, found.ranks) == ("stuck-on-io", "error", (1,))
    assert "its child process sleep (pid 50)" in found.summary and "busy" not in found.summary


def test_of_several_children_none_is_named():
    two = (child(50, "sleep", "S", 0.0), child(51, "sleep", "S", 0.0))
    (found,) = build_report(evidence({0: waits(9), 1: runs(two, two)}, quiet_s=70.0)).findings
    assert "waits for a child process to end" in found.summary


@pytest.mark.parametrize(("holders", "words"), [
    ((), "which no process of its node holds"), (("pid 9 (python)",), "held by pid 9 (python)"),
])  # fmt: skip
def test_a_lock_file_is_named_with_its_holder(holders, words):
    lock = {"lock": LockFile(path="/data/cache.lock", age_s=30.0, holders=list(holders))}
    polls = with_looks(made(LOCKS, call="clock_nanosleep"), lock, lock)
    (found,) = build_report(evidence({0: waits(9), 1: polls}, quiet_s=70.0)).findings
    assert (found.id, found.ranks) == ("stuck-on-io", (1,))
    assert f"/data/cache.lock, 30 s old, {words}" in found.summary
