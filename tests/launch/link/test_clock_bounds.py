"""Clocks that differ: by how much is bounded by the round trip of a ping."""

import pytest

from distdbg.launch.link.liveness import ClockBounds

T0 = 1_790_000_000.0


def test_equal_clocks_are_never_reported():
    bounds = ClockBounds()
    assert not any(bounds.answered(T0 + n, T0 + n + 0.5, T0 + n + 0.9) for n in range(5))


@pytest.mark.parametrize("offset", [7200.0, -7200.0])
def test_offset_is_within_the_round_trip(offset):
    bounds = ClockBounds()
    assert bounds.answered(T0, T0 + 1.2 + offset, T0 + 1.5)
    assert (bounds.least_s, bounds.most_s) == pytest.approx((offset - 0.3, offset + 1.2))


def test_only_a_round_trip_of_half_the_length_counts():
    bounds = ClockBounds()
    assert bounds.answered(T0, T0 + 60.0, T0 + 1.0)
    assert not bounds.answered(T0, T0 + 60.0, T0 + 0.9)
    assert bounds.answered(T0, T0 + 60.0, T0 + 0.1)
    assert bounds.most_s - bounds.least_s == pytest.approx(0.1)


def test_an_answer_before_its_ping_says_nothing():
    """The launcher's own clock was set back."""
    assert not ClockBounds().answered(T0 + 3600, T0 + 7200, T0)
