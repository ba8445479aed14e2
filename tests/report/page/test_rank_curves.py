"""Curves of ranks on one scale: a row each for few, a band and those that stand out for many."""

import pytest

from distdbg.report.page.rank_curves import HEIGHT, WIDTH, Curve, curve_chart


def said(value):
    return f"{value:g}"


def flat(rank, value, steps=1000, **special):
    return Curve(f"rank {rank}", [(step, value) for step in range(0, steps + 1, 10)], said(value), **special)


def ys(path):
    return [float(pair.partition(",")[2]) for pair in path.strip("MZ").split()]


def test_one_scale_for_all_from_zero_up():
    drawn = curve_chart("Memory", [flat(0, 5.0), flat(1, 10.0)], 1000, said)
    low, high = ys(drawn.rows[0].line), ys(drawn.rows[1].line)
    assert drawn.scale == "0 to 10" and set(high) == {1.0} and min(low) > 0.45 * HEIGHT
    assert [row.label for row in drawn.rows] == ["rank 0", "rank 1"]


def test_a_point_is_the_highest_of_its_part_of_the_run():
    points = [(step, 90.0 if step == 57_003 else 60.0) for step in range(0, 100_000)]
    drawn = curve_chart("Step time", [Curve("rank 0", points, "")], 100_000, said)
    assert len(ys(drawn.rows[0].line)) == 125 and min(ys(drawn.rows[0].line)) < max(ys(drawn.rows[0].line))
    assert ys(drawn.rows[0].line).count(min(ys(drawn.rows[0].line))) == 1


def test_a_warm_up_does_not_make_the_rest_flat():
    points = [(0, 5000.0), *((step, 12.0) for step in range(10, 1000, 10))]
    drawn = curve_chart("Step time", [Curve("rank 0", points, "")], 1000, said)
    assert drawn.scale == "0 to 15; higher values, up to 5000, are at the edge"


def test_of_many_the_band_and_those_that_stand_out():
    curves = [flat(n, 10.0 + 0.0001 * n) for n in range(1024)]
    curves[700] = flat(700, 4.0)
    late = [(step, 10.0 if step < 900 else 14.0) for step in range(0, 1001, 10)]
    curves[8] = Curve("rank 8", late, "late")
    curves[9] = flat(9, 10.0, marks=(500, 510))
    drawn = curve_chart("Gradient norm", curves, 1000, said)
    assert [row.label for row in drawn.rows] == ["1,024 ranks", "rank 9", "rank 700", "rank 8"]
    assert drawn.rows[1].marks == (WIDTH / 2, 510.0) and drawn.rows[0].words == "median 10.0511"


def test_many_that_are_alike_are_one_row_and_many_that_are_not_are_counted():
    alike = curve_chart("Memory", [flat(n, 10.0) for n in range(64)], 1000, said)
    assert len(alike.rows) == 1 and alike.note == "no rank was further than 5 % from the median"
    apart = curve_chart("Memory", [flat(n, 10.0 if n < 40 else 20.0) for n in range(64)], 1000, said)
    assert len(apart.rows) == 13 and "12 more were further than 5 %" in apart.note


def test_logarithms_leave_out_what_has_none():
    drawn = curve_chart(
        "Gradient norm", [Curve("rank 0", [(0, 0.0), (500, 1e-3), (1000, 1e3)], "")], 1000, said, log=True
    )
    assert drawn.scale == "0.001 to 1000, logarithmic" and len(ys(drawn.rows[0].line)) == 2


@pytest.mark.parametrize("points", [[], [(3, 1.5)], [(0, -2.0), (5, 1.0)], [(0, 0.0), (5, 0.0)]])
def test_odd_curves(points):
    drawn = curve_chart("Loss", [Curve("rank 0", points, "", marks=(4,))], 5, said)
    assert all(0 <= y <= HEIGHT for y in ys(drawn.rows[0].line) if drawn.rows[0].line)
    assert curve_chart("Loss", [Curve("rank 0", [], "")], 5, said) is None
