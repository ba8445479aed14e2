"""What is tried next, and what is answered."""

import pytest

from distdbg.rehearse.fitting import Fit


def search(fit, fits):
    """(tries in order, the answer) where `fits(value)` says what happens."""
    tried: dict[int, bool] = {}
    while (value := fit.next_value(tried)) is not None:
        assert value not in tried and fit.low <= value <= fit.high
        tried[value] = fits(value)
    return list(tried), fit.answer(tried)


@pytest.mark.parametrize("most", range(1, 65))
def test_the_largest_that_fits_is_found(most):
    tried, answer = search(Fit("batch-size", 1, 64), lambda value: value <= most)
    assert answer == most and len(tried) <= 12


@pytest.mark.parametrize(("low", "high", "most"), [(3, 50, 17), (8, 8, 8), (5, 6, 6), (1, 3, 2), (10, 1000, 999)])
def test_any_bounds(low, high, most):
    assert search(Fit("seq", low, high), lambda value: value <= most)[1] == most


def test_nothing_fits():
    assert search(Fit("batch-size", 4, 64), lambda value: False) == ([4], None)
    assert search(Fit("gpus", 1, 8), lambda value: False) == ([1, 2, 4, 8], None)


def test_the_fewest_gpus():
    assert search(Fit("gpus", 1, 16), lambda value: value >= 4) == ([1, 2, 4], 4)
    assert search(Fit("gpus", 1, 6), lambda value: value >= 5) == ([1, 2, 4, 6], 6)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("t.py", "--lr", "1"), ("t.py", "--lr", "1", "--batch-size", "7")),
        (("t.py", "--batch-size", "4", "x"), ("t.py", "--batch-size", "7", "x")),
        (("t.py", "--batch-size=4"), ("t.py", "--batch-size=7")),
        (("--batch-size", "t"), ("--batch-size", "t", "--batch-size", "7")),
    ],
)
def test_the_value_takes_the_place_of_the_one_that_is_given(given, wanted):
    assert Fit("batch-size", 1, 8).arguments(given, 7) == wanted


def test_hydras_spelling():
    assert Fit("train.batch", 1, 8).arguments(("t.py", "train.batch=2", "y=1"), 7) == ("t.py", "train.batch=7", "y=1")
