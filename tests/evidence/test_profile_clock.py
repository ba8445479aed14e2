"""Clocks of hosts from collectives: bounds that hold for certain, or no word at all."""

import random

import pytest

from distdbg.evidence.profile_clock import Collectives, HostClock, host_clock, words


def traces(offset, *, late=(300.0, 300.0), steps=20, op="gloo:all_reduce", wrong=False):
    """Two ranks in one collective a step; the second's clock is `offset` us behind. Who comes last changes."""
    rng = random.Random(7)
    ranks = Collectives(0.0), Collectives(0.0)
    for step in range(1, steps + 1):
        arrive = [step * 10_000 + rng.uniform(0, most) for most in late]
        over = max(arrive) + 50
        for which, (rank, begun) in enumerate(zip(ranks, arrive, strict=True)):
            shift = -offset * which + (900 * (step % 2) * which if wrong else 0)
            rank.see({"ph": "X", "name": f"distdbg:step {step}", "ts": (step * 10_000 - 1000) + shift, "dur": 9_000})
            rank.see({"ph": "X", "name": op, "cat": "user_annotation", "ts": begun + shift, "dur": over - begun,
                      "args": {"Input Dims": [[4]]}})  # fmt: skip
    return ranks


@pytest.mark.parametrize("op", ["gloo:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"])
@pytest.mark.parametrize("offset", [0.0, 3_700.0, -41_000.0])
def test_an_offset_is_found_within_its_error(offset, op):
    found = host_clock("b", *traces(offset, op=op))
    assert found.offset_us is not None and abs(found.offset_us - offset) <= found.error_us < 200


def test_one_that_always_comes_last_bounds_one_side_and_the_error_says_so():
    found = host_clock("b", *traces(1_000.0, late=(1.0, 4_000.0)))
    assert abs(found.offset_us - 1_000.0) <= found.error_us


def test_nothing_in_common_is_no_offset():
    ours, _ = traces(0.0)
    assert host_clock("b", ours, Collectives(0.0)).offset_us is None
    other, _ = traces(0.0, op="gloo:all_gather")
    assert "no collective of the same step" in host_clock("b", ours, other).because
    broadcast, theirs = traces(0.0, op="gloo:broadcast")
    assert host_clock("b", broadcast, theirs).offset_us is None, "who only sends does not wait"


def test_collectives_that_contradict_each_other_are_not_believed():
    found = host_clock("b", *traces(0.0, wrong=True))
    assert found.offset_us is None and "contradict" in found.because


def test_the_error_is_said_in_words():
    one = HostClock("a", 0.0, 0.0)
    assert words([one]).startswith("one host, one clock")
    assert words([one, HostClock("b", 9.0, 61.2)]).startswith("clock error up to 61 us between hosts")
    assert words([one, HostClock("b", None, because="x")]).startswith("clock error unknown")
