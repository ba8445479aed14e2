"""Stretches of time: against the same sums on a grid of single units."""

import random

import pytest

from distdbg.evidence.trace.spans import length, overlap, union, within, without


def grid(spans):
    return {n for begin, end in spans for n in range(begin, end)}


@pytest.mark.parametrize("seed", range(40))
def test_as_on_a_grid(seed):
    numbers = random.Random(seed)
    one, other = (
        union((n, n + numbers.randint(0, 6)) for n in (numbers.randint(0, 60) for _ in range(numbers.randint(0, 12))))
        for _ in range(2)
    )
    assert grid(overlap(one, other)) == grid(one) & grid(other)
    assert grid(without(one, other)) == grid(one) - grid(other)
    assert grid(union([*one, *other])) == grid(one) | grid(other)
    assert grid(within(one, 10, 40)) == grid(one) & set(range(10, 40))
    assert length(one) == len(grid(one))


def test_small_gaps_can_be_closed():
    assert union([(0, 2), (3, 4), (9, 9)], gap=1) == [(0, 4)]
