"""The smallest value that shows it, against trying all of them."""

import pytest

from distdbg.shrink.bisect.searching import Axis, Found, smallest


def search(axis, threshold):
    asked = []

    def shows(value):
        asked.append(value)
        return value >= threshold

    return smallest(axis, shows), asked


@pytest.mark.parametrize("threshold", range(1, 41))
@pytest.mark.parametrize("step", [1, 3, 8, 64])
def test_equals_trying_each(threshold, step):
    axis = Axis("n", 1, 40, step)
    values = [*range(1, 40, step), 40]
    best = min(v for v in values if v >= threshold)
    below = [v for v in values if v < best]
    found, asked = search(axis, threshold)
    assert found == Found(best, below[-1] if below else None)
    assert len(asked) == len(set(asked)) and 40 not in asked, "nothing is run twice, nor what is known to show it"


def test_small_values_are_tried_before_large_ones():
    _, asked = search(Axis("seq", 1, 4096), 3)
    assert asked[:2] == [1, 64]
    assert len(asked) <= 14


def test_an_axis_with_one_value_needs_no_try():
    assert search(Axis("n", 4, 4), 1) == (Found(4, None), [])
