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


def ended_child(pid, exit_code, parent=1001):
    return Descendant(pid=pid, parent=parent, name="python", state="Z", cpu_s=1.0, exit_code=exit_code)


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


def reads(frames, *ended):
    """Waits in a read; `ended` are (pid, exit code) of its children that nobody has waited for."""
    below = tuple(ended_child(pid, code) for pid, code in ended)
    return with_looks(made(frames, call="read"), {"below": below}, {"below": below})


QUEUE = (Frame("Queue.get", f"{LIB}/multiprocessing/queues.py", 103), user(12, "take"), *BOOT)
PIPE = (user(12, "take"), *BOOT)


@pytest.mark.parametrize(("frames", "ended", "words"), [
    (QUEUE, [(50, -9)], "child python (pid 50): SIGKILL, at"),
    (QUEUE, [(50, 0)], "child python (pid 50): exit code 0, at"),
    (PIPE, [(50, 0), (51, 3)], "child python (pid 51): exit code 3, at"),
    (PIPE, [(51, 3), (52, -11)], "children python (pid 51): exit code 3, python (pid 52): SIGSEGV, at"),
    (PIPE, [(50, 0)], None),  # any command that was started and forgotten
])  # fmt: skip
def test_children_that_have_ended_while_their_rank_waits(frames, ended, words):
    (found,) = build_report(evidence({0: waits(9), 1: reads(frames, *ended)})).findings
    assert (found.id, found.ranks) == ("stuck-on-io", (1,))
    assert "after the end" not in found.summary if words is None else f"after the end of its {words}" in found.summary


def test_a_child_that_died_says_nothing_of_a_rank_that_waits_for_ranks():
    below = (ended_child(50, -9, parent=1000),)
    other = made((user(16, "fetch"), *BOOT), call="clock_nanosleep")
    (found,) = build_report(evidence({0: with_looks(waits(9), {"below": below}, {"below": below}), 1: other})).findings
    assert (found.id, found.ranks) == ("stuck-in-python", (1,)) and "SIGKILL" not in found.summary + found.cause
