"""Looks at a heartbeat page become the time of a step."""

from distdbg.launch.agent.step_times import StepTimes

MS = 1_000_000


def test_long_steps_are_measured_one_by_one_and_short_ones_by_their_mean():
    times = StepTimes()
    for step, at in ((3, 0), (4, 200), (4, 200), (5, 400), (6, 600), (10, 800)):
        times.look(step, at * MS)
    told = times.told()
    assert (told["windows"], told["median"], told["low"], told["high"]) == (4, 200.0, 162.5, 200.0)
    assert times.newest() == 200.0


def test_the_first_steps_do_not_count():
    times = StepTimes()
    for step in range(3):
        times.look(step, step * 60_000 * MS)
    times.look(3, 200_000 * MS)
    assert times.told() == {}
    assert times.newest() is None
    times.look(4, 200_007 * MS)
    assert times.told() == {"windows": 1, "low": 7.0, "median": 7.0, "high": 7.0}


def test_a_page_that_begins_anew_is_no_step():
    times = StepTimes()
    times.look(50, 100 * MS)
    times.look(3, 500 * MS)
    times.look(5, 510 * MS)
    assert times.told()["median"] == 5.0
