"""Who the others wait for, by arrival times and by phases; clocks that differ must not make a culprit."""

import random
from array import array

import pytest

from distdbg.diagnosis.timeline.arrivals import late_devices, late_ranks, longer_phases, nobody_waits
from distdbg.diagnosis.timeline.groups import Group
from distdbg.evidence.recorder.log import GroupLog, Signatures

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
    assert (found.times, found.collectives, found.clock_error_s) == (50, 50, 0)
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


def of_two(phase, late_us):
    """Rank 1 is longer in `phase`, rank 0 in backward; `late_us` by rank."""
    shares = {0: {phase: 50, "backward": 950}, 1: {phase: 750, "backward": 250}}
    late = {rank: {"windows": 20} | ({} if us is None else {"late_us": us}) for rank, us in late_us.items()}
    return {rank: shares[rank] | late[rank] for rank in shares}


@pytest.mark.parametrize("phase", ["data", "forward", "optimizer"])
def test_of_two_ranks_the_one_that_comes_last_is_compared_with_the_other(phase):
    (found,) = longer_phases(of_two(phase, {0: 300, 1: 80_000}))
    assert (found.rank, found.phase, found.waits_in, found.share, found.usual) == (1, phase, "backward", 0.75, 0.05)
    (found,) = longer_phases(of_two(phase, {0: 80_000, 1: 0}))
    assert (found.rank, found.phase, found.waits_in) == (0, "backward", phase), "rank 1 waits before its backward"


@pytest.mark.parametrize(
    "phases",
    [
        of_two("data", {0: None, 1: None}),  # each is alone on its node
        of_two("data", {0: 40_000, 1: 80_000}),  # they take turns
        of_two("data", {0: 0, 1: 900}),  # in quick steps
        dict.fromkeys(range(4), WAITING),
        {0: WAITING, 1: {"windows": 9, "data": 900, "backward": 100}},  # too few
        {0: WAITING, 1: {}},  # a rank that nobody saw
        {0: WAITING, 1: {"windows": 20, "data": 70, "backward": 930}, 2: WAITING},  # within the noise
        {},
    ],
    ids=["no delays", "by turns", "quick", "even", "few", "unseen", "noise", "none"],
)
def test_nobody_is_longer(phases):
    assert longer_phases(phases) == []


def timed(durations, behind=None):
    """durations: rank -> ms of each collective; the hosts have enqueued them together, 100 ms apart, but those that
    are `behind` by so many ms."""
    count = len(next(iter(durations.values())))
    times = {rank: [10**18 + (n * 100 + (behind or {}).get(rank, 0)) * MS for n in range(count)] for rank in durations}
    found = group(times)
    for rank, log in found.logs.items():
        log.comm, log.duration = "nccl", array("f", durations[rank])
    return Group("0", found.ranks, found.logs, "nccl")


def operations(name):
    """Signatures of which number 0 is this operation's, as in `group`."""
    signatures = Signatures()
    signatures.number((f"nccl:{name}", ((4,),), ("Float",)))
    return signatures


REDUCES = operations("all_reduce")


def test_the_device_that_the_others_wait_for_is_short_in_each_collective():
    late = late_devices(timed({0: [41.0] * 40, 1: [1.0] * 40, 2: [40.0] * 40, 3: [40.5] * 40}), REDUCES)
    assert (late.ranks, late.side, late.times) == ((1,), "device", 30)
    assert late.late_s == pytest.approx(0.039, abs=0.001)


def test_no_device_is_late_where_they_take_turns_or_are_not_timed():
    turns = {rank: [40.0 if n % 4 != rank else 1.0 for n in range(40)] for rank in range(4)}
    assert late_devices(timed(turns), REDUCES) is None
    assert late_devices(group({0: [10**18] * 40, 1: [10**18] * 40}), REDUCES) is None
    some = timed({0: [41.0] * 40, 1: [0.0] * 40})  # not known of rank 1
    assert late_devices(some, REDUCES) is None


def test_the_root_of_a_broadcast_is_not_late_because_it_ends_first():
    durations = {rank: [30.0 if rank else 0.1] * 40 for rank in range(4)}
    assert late_devices(timed(durations), operations("broadcast")) is None
    assert late_devices(timed(durations), REDUCES).ranks == (0,)


def test_a_host_that_enqueues_later_is_not_waited_for_where_all_are_ahead_of_their_devices():
    """Rank 1 writes a log in each step; its device still has work, and the durations are the same everywhere."""
    behind = late_ranks(timed({rank: [5.0] * 40 for rank in range(4)}, behind={1: 30}), ONE_HOST)
    assert behind.ranks == (1,) and nobody_waits(behind, REDUCES)
    waited = timed({rank: [5.0 if rank == 1 else 35.0] * 40 for rank in range(4)}, behind={1: 30})
    assert not nobody_waits(late_ranks(waited, ONE_HOST), REDUCES)
    assert not nobody_waits(
        late_ranks(group(blocking_steps(lambda _, rank: 300 * MS * (rank == 1))), ONE_HOST), REDUCES
    )


def test_a_host_that_comes_late_to_what_devices_do_is_the_host_side():
    found = group(blocking_steps(lambda _, rank: 300 * MS if rank == 1 else rank * MS))
    on_device = Group("0", found.ranks, found.logs, "nccl")
    assert late_ranks(on_device, ONE_HOST).side == "host"
    assert late_ranks(found, ONE_HOST).side is None


def test_first_collectives_of_a_group_are_not_judged():
    """A rank that compiles, or fills its caches, is late in them."""
    late = blocking_steps(lambda step, rank: 900 * MS if rank == 1 and step < 10 else 0, steps=40)
    assert late_ranks(group(late), ONE_HOST) is None
    assert late_ranks(group(blocking_steps(lambda _, rank: 300 * MS * (rank == 1), steps=21)), ONE_HOST) is None
    assert late_ranks(group(blocking_steps(lambda _, rank: 300 * MS * (rank == 1), steps=30)), ONE_HOST).ranks == (1,)
