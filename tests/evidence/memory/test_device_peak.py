"""The most that a rank had allocated of its GPU: torch's own maximum, in what was read of its lines."""

import pytest

from distdbg.evidence.memory.growth import MemorySeries, Point, device_peak


def series(*points, course=()):
    made = [tuple(Point(step, 0, highest=highest) for step, highest in some) for some in (points, course)]
    return MemorySeries(made[0], "ranks/0", course=made[1])


@pytest.mark.parametrize(
    ("read", "when"),
    [
        (series((900, 7), (905, 7)), "by step 900"),
        (series((900, 7), (905, 7), course=((1, 3), (400, 3), (700, 7))), "between steps 400 and 700"),
        (series((1, 3), (2, 7), (3, 7)), "in step 2"),
        (series((1, 3), (2, 3), (2, 7)), "in step 2"),  # an epoch's end, after the step's
        (series((1, 3), (5, 7), (9, 3)), "between steps 1 and 5"),  # the script resets it
    ],
)
def test_it_came_before_the_first_line_that_has_it(read, when):
    found = device_peak(read)
    assert (found.bytes, found.when) == (7, when)


def test_what_was_read_is_counted_once_and_without_a_gpu_there_is_none():
    found = device_peak(series((4, 2), (5, 2), course=((1, 2), (4, 2))))
    assert (found.steps, found.first, found.last) == (3, 1, 5)
    assert device_peak(MemorySeries((Point(1, 0),))) is None
