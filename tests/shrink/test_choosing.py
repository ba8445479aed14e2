"""Which layers `--keep` names."""

from __future__ import annotations

import tracemalloc

import pytest

from distdbg.errors import UsageError
from distdbg.shrink.choosing import chosen_layers, order_warning, refuse_bad_syntax


@pytest.mark.parametrize(
    ("where", "layers"),
    [
        ("0-3,-2,first:2,last:1", [0, 1, 2, 3, 8, 0, 1, 9]),
        ("-3--1", [7, 8, 9]),
        ("3-1", [3, 2, 1]),
        ("5, 5", [5, 5]),
        ("0-9", list(range(10))),
    ],
)
def test_lists(where: str, layers: list[int]) -> None:
    assert chosen_layers([0] * 10, None, where) == layers


@pytest.mark.parametrize("where", ["some", "1-", "first:", "0,,1", "1.5", "first:2:3", "0-" + "9" * 5000])
def test_syntax(where: str) -> None:
    with pytest.raises(UsageError, match="is no list of layers"):
        refuse_bad_syntax(where)


@pytest.mark.parametrize("where", ["8", "-9", "first:9", "7-8", "last:0"])
def test_layers_that_there_are_not(where: str) -> None:
    with pytest.raises(UsageError, match="0 to 7"):
        chosen_layers([0] * 8, None, where)


def test_an_order_is_reported() -> None:
    assert "several times" in order_warning("s", [0, 0]) and "another order" in order_warning("s", [1, 0])
    both = order_warning("s", [3, 1, 1])
    assert "several times" in both and "another order" in both
    assert not order_warning("s", [0, 3])


def test_a_range_is_compared_with_the_model_before_it_becomes_a_list() -> None:
    tracemalloc.start()
    try:
        for where in ("0-999999999", "first:999999999", "0,-999999999-0"):
            with pytest.raises(UsageError, match="0 to 7"):
                chosen_layers([0] * 8, None, where)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
