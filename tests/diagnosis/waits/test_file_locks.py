"""A rank that waits for a file that another rank has locked waits for that rank."""

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.protocol.dump import LockFile
from tests.hang_cases import evidence, roots, sleeps, stands_at, user, waits
from tests.made_dump import BOOT, frame

LOCKS = (user(12, "load"), *BOOT)
POLLS = (frame("acquire", "/env/site-packages/filelock/_api.py", 177), user(12, "load"), *BOOT)


def for_lock_of(*ranks, later=None):
    held = tuple(tuple(1000 + r for r in which) for which in (ranks, ranks if later is None else later))
    return stands_at(LOCKS, call="flock", holders=held)


def polls_for_lock_of(*ranks):
    """As the library filelock does."""
    lock = LockFile(path="/cache.lock", age_s=9.0, holders=(), locked_by=tuple(1000 + r for r in ranks))
    return stands_at(POLLS, call="clock_nanosleep", lock=lock)


def judged(ranks):
    return roots(build_report(evidence(ranks)))


def test_a_rank_in_a_collective_that_holds_the_lock_is_part_of_a_circle():
    assert judged({0: waits(9), 1: for_lock_of(0)}) == [("group-deadlock", (0, 1))]
    assert judged({0: waits(9), 1: for_lock_of(0), 2: waits(9)}) == [("group-deadlock", (0, 1))]
    assert judged({0: waits(9), 1: polls_for_lock_of(0)}) == [("group-deadlock", (0, 1))]


def test_who_holds_the_lock_and_does_not_go_on_is_the_culprit():
    ranks = {0: sleeps(8), 1: for_lock_of(0)}
    assert judged(ranks) == [("stuck-in-python", (0,))], "no rank is in a collective"
    assert judged(ranks | {2: waits(9), 3: waits(9)}) == [("stuck-in-python", (0,))]


@pytest.mark.parametrize(
    "waiting",
    [
        pytest.param(for_lock_of(), id="nobody is known"),
        pytest.param(for_lock_of(7), id="another process"),
        pytest.param(for_lock_of(0, 7), id="another process, too"),
        pytest.param(polls_for_lock_of(), id="polls, and nobody is known"),
        pytest.param(polls_for_lock_of(0, 7), id="polls, and another process has locked it, too"),
        pytest.param(for_lock_of(2), id="a rank of another node"),
        pytest.param(for_lock_of(0, later=()), id="it was released meanwhile"),
    ],
)
def test_no_wait_for_a_rank(waiting):
    assert judged({0: waits(9), 1: waiting, 2: waits(9)}) == [("stuck-on-io", (1,))]
