"""Looks at GPUs, out of lines that may be anything."""

from distdbg.evidence.host.gpus import OtherProcess, Slowed, gpu_courses


def lines(*looks):
    return [(n, {"t": 10.0 * n, "gpus": gpus}) for n, gpus in enumerate(looks)]


def test_who_was_on_a_device_at_each_of_the_last_looks():
    both = [{"index": 1, "ranks": [2, 3]}]
    (found,) = gpu_courses(lines(both, both, [{"index": 1, "ranks": [3, 4]}], both))
    assert (found.index, found.looks, found.ranks, found.parted) == (1, 4, (3,), False)
    assert gpu_courses(lines(both, both))[0].ranks == ()  # too few
    assert gpu_courses(lines(both, both, [{"index": 1, "ranks": [2, 3], "mig": True}]))[0].parted


def test_processes_that_were_beside_it_at_each_of_the_last_looks():
    bob, short = {"pid": 7, "command": "python3", "memory_used": 5}, {"pid": 8, "command": "", "memory_used": None}
    looks = [[{"index": 1, "ranks": [2], "others": others}] for others in ([bob], [bob, short, "x"], [bob, short])]
    assert gpu_courses(lines(*looks))[0].others == (OtherProcess(7, "python3", 5),)
    assert gpu_courses(lines(*looks[:2]))[0].others == ()


def test_what_slowed_it():
    slow = [{"index": 0, "throttle": ["power cap", "power brake"], "temperature": 71}]
    (found,) = gpu_courses(lines([{"index": 0, "throttle": ["power cap"], "temperature": 99}], slow, slow))
    assert found.slowed == {"power cap": Slowed(3, 0.0, 99), "power brake": Slowed(2, 10.0, 71)}


def test_what_is_no_look_is_left_out():
    odd = [{}, {"index": "0"}, None, {"index": 2, "ranks": 5, "throttle": 3, "temperature": "hot"}]
    (found,) = gpu_courses([(1, {}), (2, {"gpus": 3}), (3, {"gpus": odd})])
    assert (found.index, found.ranks, found.slowed) == (2, (), {})
