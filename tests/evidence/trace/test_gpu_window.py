"""NVML's looks beside a profiled window."""

from distdbg.evidence.trace.device import NEAR_S, Watched, watched


def look(t, *busy, ranks=(3,)):
    return {"t": t, "gpus": [{"index": n, "utilisation": value, "ranks": list(ranks)} for n, value in enumerate(busy)]}


def test_looks_in_the_window_count_alone_and_others_stand_in_for_them():
    lines = [look(80.0, 1), look(95.0, 10), look(101.0, 60), look(104.0, 80), look(110.0, 20)]
    assert watched(lines, 3, 100.0, 105.0) == Watched(0.7, 2, within=True)
    assert watched([look(95.0, 0), look(110.0, 50)], 3, 100.0, 105.0) == Watched(0.25, 2, within=False)
    assert watched([look(100.0 - NEAR_S - 1, 10)], 3, 100.0, 105.0) is None


def test_of_several_devices_the_least_busy_counts_and_those_of_other_ranks_do_not():
    assert watched([look(101.0, 90, 40)], 3, 100.0, 105.0) == Watched(0.4, 1, within=True)
    assert watched([look(101.0, 90, ranks=(2,))], 3, 100.0, 105.0) is None


def test_what_is_no_look_is_passed_over():
    odd = [{}, {"t": "x", "gpus": []}, {"t": 101.0, "gpus": [5, {"ranks": 3}, {"ranks": [3], "utilisation": 400}]}]
    assert watched(odd, 3, 100.0, 105.0) is None
