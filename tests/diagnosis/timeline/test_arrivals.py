"""Who the others wait for, by arrival times and by phases; clocks that differ must not make a culprit."""

import random
from array import array

import pytest

from distdbg.diagnosis.timeline.arrivals import late_ranks, longer_phases
from distdbg.diagnosis.timeline.groups import Group
from distdbg.evidence.recorder.log import GroupLog

MS = 1_000_000
ONE_HOST = dict.fromkeys(range(8), "a")


def group(arrivals):
    """arrivals: rank -> times in ns."""
    logs = {
        rank: GroupLog("0", "default_pg", array("q", range(1, len(times) + 1)), array("L", [0] * len(times)),
                       array("q", times), bytearray([1] * len(times)))
        for rank, times in arrivals.items()
    }  # fmt: skip
    return Group("0", tuple(arrivals), logs)


def blocking_steps(late, steps=60, ranks=4, own=100 * MS):
    """Arrivals where each step begins once all have come: late(step, rank) ns after the others."""
    times, now = {rank: [] for rank in range(ranks)}, 10**18
    for step in range(steps):
        came = {rank: now + own + late(step, rank) for rank in range(ranks)}
        for rank, when in came.items():
            times[rank].append(when)
        now = max(came.values()) + MS
    return times


def test_the_one_that_is_always_last():
    found = late_ranks(group(blocking_steps(lambda _, rank: 300 * MS if rank == 1 else rank * MS)), ONE_HOST)
    assert found.ranks == (1,)
    assert found.late_s == pytest.approx(0.297)
    assert (found.times, found.collectives, found.clock_error_s) == (60, 60, 0)
    assert found.share == pytest.approx(297 / 401, abs=0.02)


def test_two_that_are_late_together():
    found = late_ranks(group(blocking_steps(lambda _, rank: 50 * MS if rank in (2, 3) else rank * MS)), ONE_HOST)
    assert found.ranks == (2, 3)


@pytest.mark.parametrize("seed", range(5))
def test_now_one_and_now_another_is_nobody(seed):
    noise = random.Random(seed)
    assert late_ranks(group(blocking_steps(lambda *_: noise.randrange(100 * MS))), ONE_HOST) is None


def test_less_than_a_tenth_of_the_time_is_not_worth_a_word():
    assert late_ranks(group(blocking_steps(lambda _, rank: 8 * MS if rank == 1 else 0)), ONE_HOST) is None


def test_a_rank_whose_recorder_is_missing_may_be_the_late_one():
    whole = group(blocking_steps(lambda _, rank: 300 * MS if rank == 1 else 0))
    assert late_ranks(Group("0", (*whole.ranks, 9), whole.logs), ONE_HOST) is None


def test_a_clock_that_is_ahead_is_no_lateness_and_a_late_rank_is_found_in_spite_of_it():
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    healthy = blocking_steps(lambda _, rank: rank * MS)
    ahead = {rank: [t + 5000 * MS * (rank > 1) for t in times] for rank, times in healthy.items()}
    assert late_ranks(group(ahead), hosts) is None
    slow = blocking_steps(lambda step, rank: 400 * MS if rank == 3 and step % 2 else 0)
    ahead = {rank: [t + 5000 * MS * (rank > 1) for t in times] for rank, times in slow.items()}
    found = late_ranks(group(ahead), hosts)
    assert found.ranks == (3,)
    assert 0 < found.clock_error_s < 0.11


def test_a_rank_that_was_late_once_and_for_long_is_no_straggler():
    late = group(blocking_steps(lambda step, rank: 60_000 * MS if (step, rank) == (30, 1) else 0))
    assert late_ranks(late, ONE_HOST) is None


WAITING = {"windows": 20, "data": 50, "backward": 950}


def test_the_rank_that_is_longer_in_its_data_while_the_others_wait():
    (found,) = longer_phases({0: WAITING, 1: {"windows": 20, "data": 750, "backward": 250}, 2: WAITING, 3: WAITING})
    assert (found.rank, found.phase, found.waits_in) == (1, "data", "backward")
    assert (found.share, found.usual) == (0.75, 0.05)


@pytest.mark.parametrize(
    "phases",
    [
        dict.fromkeys(range(4), WAITING),
        {0: WAITING, 1: {"windows": 9, "data": 900, "backward": 100}},  # too few
        {0: WAITING, 1: {}},  # a rank that nobody saw
        {0: WAITING, 1: {"windows": 20, "data": 70, "backward": 930}, 2: WAITING},  # within the noise
        {},
    ],
    ids=["even", "few", "unseen", "noise", "none"],
)
def test_nobody_is_longer(phases):
    assert longer_phases(phases) == []
