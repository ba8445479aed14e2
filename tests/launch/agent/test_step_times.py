"""Looks at a heartbeat page become the time of a step."""

from distdbg.launch.agent.timing import StepTimer

MS = 1_000_000


def test_long_steps_are_measured_one_by_one_and_short_ones_by_their_mean():
    times = StepTimer()
    for step, at in ((3, 0), (4, 200), (4, 200), (5, 400), (6, 600), (10, 800)):
        times.look(step, at * MS)
    figures = times.figures()
    assert (figures["windows"], figures["median"], figures["low"], figures["high"]) == (4, 200.0, 162.5, 200.0)
    assert times.newest() == 200.0


def test_the_first_steps_do_not_count():
    times = StepTimer()
    for step in range(3):
        times.look(step, step * 60_000 * MS)
    times.look(3, 200_000 * MS)
    assert times.figures() == {}
    assert times.newest() is None
    times.look(4, 200_007 * MS)
    assert times.figures() == {"windows": 1, "low": 7.0, "median": 7.0, "high": 7.0}


def test_a_page_that_begins_anew_is_no_step():
    times = StepTimer()
    times.look(50, 100 * MS)
    times.look(3, 500 * MS)
    times.look(5, 510 * MS)
    assert times.figures()["median"] == 5.0
