"""Looks at ranks, out of lines that may be anything."""

from distdbg.evidence.host.gpus import courses


def test_looks_by_rank_with_the_memory_of_their_gpus():
    rows = [{"rank": 0, "step": 5, "step_ms": 2.5, "rss": 10}, {"rank": 1, "step": 6}]
    gpus = [{"memory_used": 7, "ranks": [1]}, {"memory_used": 5, "ranks": [1]}, {"memory_used": 3, "ranks": []}]
    found = courses([(1, {"t": 3.0, "ranks": rows, "gpus": gpus})])
    assert (found[0][0].step_ms, found[0][0].rss, found[0][0].gpu_used) == (2.5, 10, None)
    assert (found[1][0].step, found[1][0].gpu_used) == (6, 12)


def test_what_is_no_look_is_left_out():
    lines = [{}, {"t": 1.0}, {"t": 1.0, "ranks": 3}, {"t": "x", "ranks": [{"rank": 0, "step": 1}]},
             {"t": 1.0, "ranks": [None, {"rank": 0}, {"rank": 0, "step": -1}, {"rank": "0", "step": 1}], "gpus": [1]},
             {"t": 1.0, "ranks": [{"rank": 0, "step": 1}], "gpus": [{"memory_used": 3, "ranks": 5}]}]  # fmt: skip
    assert list(courses(list(enumerate(lines)))) == [0]
