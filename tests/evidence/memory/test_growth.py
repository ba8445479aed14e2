"""Growth without end is distinguished from growth that stops: series as real programs have them."""

import random

import pytest

from distdbg.evidence.memory.growth import growth, node_memory, rank_series, since
from distdbg.evidence.memory.thresholds import MIB

LEAST, SHARE = 24 * MIB, 0.04


def series(shape, steps=400, every=4, epochs=lambda step: step // 100, noise=MIB // 4, start=300 * MIB):
    draw = random.Random(1)
    return [(s, int(start + shape(s) + draw.random() * noise), epochs(s)) for s in range(0, steps, every)]


@pytest.mark.parametrize("slope", [MIB // 4, MIB, 64 * MIB])
def test_a_slope_is_found_and_measured(slope):
    found = growth(series(lambda s: slope * s), LEAST, SHARE)
    assert found is not None and abs(found.slope - slope) < 0.05 * slope
    assert found.epochs == 2 and found.first >= 132 and list(found.levels) == sorted(found.levels)


def test_a_staircase_of_epochs_is_growth():
    found = growth(series(lambda s: (s // 25) * 20 * MIB), LEAST, SHARE)
    assert found is not None


@pytest.mark.parametrize("epochs", [6, 7, 8, 11, 20])
@pytest.mark.parametrize("beside", [lambda s: 0, lambda s: (s % 100) * MIB, lambda s: (s % 100 == 48) * 900 * MIB])
def test_what_comes_once_an_epoch_is_growth(epochs, beside):
    """Beside it what an epoch fills and lets go, or a checkpoint's copy."""
    found = growth(series(lambda s: s // 100 * 500 * MIB + beside(s), steps=epochs * 100), LEAST, SHARE)
    assert found is not None and 4 * MIB < found.slope < 6 * MIB
    if epochs < 8:
        assert found.pace == "500 MiB an epoch" and found.epochs == epochs - 3


@pytest.mark.parametrize("epochs", range(3, 12))
@pytest.mark.parametrize(
    "shape",
    [
        lambda s: min(s // 100, 2) * 500 * MIB,
        lambda s: 2000 * MIB * (1 - 0.8 ** (s // 100)),  # each adds a little less
        lambda s: (s % 100) * 20 * MIB,  # an epoch's list, let go at its end
        lambda s: (s % 100 > 70) * 900 * MIB,
        lambda s: (s // 100 % 2) * 500 * MIB,  # every second one
        lambda s: (s // 100 == 3) * 900 * MIB,
    ],
)
def test_epochs_that_level_off_or_let_go_are_no_growth(epochs, shape):
    for every in (2, 11, 23, 26, 31):
        assert growth(series(shape, steps=epochs * 100, every=every), LEAST, SHARE) is None, every


def test_where_it_began():
    for begun in (0, 100):
        values = series(lambda s, begun=begun: max(0, s - begun) * MIB)
        assert abs(since(values, growth(values, LEAST, SHARE)) - begun) <= 30


def test_a_saw_whose_floor_rises_is_growth():
    assert growth(series(lambda s: s * MIB + (s % 20) * 5 * MIB), LEAST, SHARE) is not None


@pytest.mark.parametrize(
    "shape",
    [
        lambda s: 0,
        lambda s: min(s, 130) * 4 * MIB,  # a warm-up
        lambda s: min(s, 250) * 4 * MIB,  # a cache that fills, and stops late
        lambda s: (s % 20) * 10 * MIB,  # a saw's teeth
        lambda s: 200 * MIB * (1 - 0.99**s),  # it flattens
        lambda s: 500 * MIB if s > 200 else 0,  # an evaluation's buffers, once
        lambda s: 300 * MIB - s * MIB // 4,  # it shrinks
        lambda s: s * MIB // 40,  # ten MiB in all
    ],
)
def test_what_stops_is_no_growth(shape):
    assert growth(series(shape), LEAST, SHARE) is None


def test_too_few_points_are_no_growth():
    assert growth(series(lambda s: s * MIB, steps=90), LEAST, SHARE) is None
    assert growth([], LEAST, SHARE) is None
    assert growth([(5, 100 * MIB * n, 0) for n in range(100)], LEAST, SHARE) is None, "all of one step"


def test_lines_of_another_kind_are_left_out():
    lines = [(1, {"step": 3, "phases": {"optimizer": {"ANON": 5}}}), (2, {"phases": 7}), (3, {"step": "x"})]
    facts = [(4, {"kind": "census", "step": 16, "epochs": -1, "growing": "no list"})]
    found = rank_series(lines, "ranks/0", facts)
    assert [(p.step, p.anon, p.epochs, p.reserved) for p in found.points] == [(3, 5, -1, None)]
    assert found.growing == () and found.counted_at == 16 and not found.loads
    assert rank_series([], "x", []) is None


def test_what_the_dead_have_given_back_is_not_left():
    """The last look is of a time when a rank was gone, and with it most of what was in use; the first of none yet."""
    looks = [
        {"ranks": [], "memory": {"available": 9000}},
        {"ranks": [{"rank": 0, "step": 64, "anon": 500, "alive": True}, {"rank": 1, "step": 63, "anon": 400}],
         "memory": {"available": 300}},
        {"ranks": [{"rank": 0, "step": 197, "anon": 0, "alive": False}, {"rank": 1, "step": 197, "anon": 900}],
         "memory": {"available": 8000}},
    ]  # fmt: skip
    found = node_memory(list(enumerate(looks, 1)), "m")
    assert (found.headroom, found.steps) == (300, {0: 64, 1: 63})
    assert node_memory([(1, looks[0]), (3, looks[2])], "m").headroom is None, "nobody looked while they ran"
    assert [p.anon for p in found.points[0]] == [500] and [p.anon for p in found.points[1]] == [400, 900]


def test_what_a_step_needed_beyond_its_end():
    phases = {"forward": {"ANON": 9}, "backward": {"ANON": 7}, "optimizer": {"ANON": 5, "DATA": 40}}
    (point,) = rank_series([(1, {"step": 3, "phases": phases})], "ranks/0", []).points
    assert (point.anon, point.within, point.asked) == (5, 4, 40)


def test_what_is_left_is_the_nearer_of_two_limits():
    memory = {"available": 900, "limit": 1000, "current": 600, "reclaimable": 50}
    ranks = [{"rank": 1, "step": 4, "anon": 7, "epochs": 2}, {"rank": 2}, 5]
    found = node_memory([(1, {"memory": memory, "ranks": ranks})], "m")
    assert (found.headroom, found.of) == (450, "its control group's limit")
    assert [(p.step, p.anon, p.epochs) for p in found.points[1]] == [(4, 7, 2)]
    assert node_memory([(1, {"memory": {**memory, "available": 3}, "ranks": ranks})], "m").of == "the machine"
    assert node_memory([(1, {"memory": {"because": "none"}, "ranks": None})], "m").headroom is None
