"""Looks at a rank's phases become the median over windows of steps."""

from distdbg.launch.agent.timing import PhaseWindows


def looks(windows, steps, phase, per_step):
    for step in steps:
        for _ in range(per_step):
            windows.count(phase, step)


def test_shares_are_medians_over_windows_of_steps():
    windows = PhaseWindows()
    for step in range(3, 103):
        for phase in ("data", "backward", "backward", "backward"):
            windows.count(phase, step)
    shares = windows.shares()
    assert shares.pop("windows") == 20
    assert shares == {"backward": 750, "data": 250}


def test_one_long_step_is_one_window():
    windows = PhaseWindows()
    looks(windows, range(3, 53), "backward", 4)
    looks(windows, [53], "saving", 10_000)
    looks(windows, range(54, 103), "backward", 4)
    assert windows.shares()["backward"] > 900
    assert windows.shares().get("saving", 0) < 100


def test_nothing_is_reported_before_a_window_is_full():
    windows = PhaseWindows()
    looks(windows, [3], "data", 500)
    assert windows.shares() == {}
