"""Lists of a config with an entry a layer, written out or as runs."""

from __future__ import annotations

from typing import Any

import pytest

from distdbg.shrink.checkpoint.config_leaves import entries, picked, sequences

RUNS = [[["global", "local"], 2], [["global"], 1]]


@pytest.mark.parametrize("length", [4, 5, 6])
def test_runs_are_as_long_as_what_they_stand_for(length: int) -> None:
    assert list(sequences({"kinds": RUNS}, (), length)) == ([("kinds",)] if length == 5 else [])


@pytest.mark.parametrize(
    "value",
    [
        [[["global", "local"], -2], [["global"], 9]],
        [[["global", "local"], True], [["global"], 3]],
        [[["global", "local"], 2], ["global", 1]],
        [[["global", "local"], 2, 1]],
        [],
    ],
)
def test_lists_that_are_no_runs(value: list[Any]) -> None:
    assert list(sequences({"kinds": value}, (), 5)) == []


def test_a_long_run_is_not_written_out() -> None:
    assert list(sequences({"kinds": [[["global"], 10**12]]}, (), 5)) == []


def test_what_each_layer_has() -> None:
    assert list(entries(RUNS, 5)) == ["global", "local", "global", "local", "global"]
    assert entries("abab", 4) == "abab"


def test_kept_entries_are_of_the_same_form() -> None:
    assert picked(RUNS, 5, [1, 4]) == [[["local", "global"], 1]]
    assert entries(picked(RUNS, 5, [1, 4]), 2) == ["local", "global"]
    assert picked("abab", 4, [0, 3]) == "ab"
    assert picked([1, 2, 3], 3, [2, 0]) == [3, 1]


def test_a_list_with_an_entry_a_layer_is_not_read_as_runs() -> None:
    pairs = [[[1, 2], 3], [[4], 1]]
    assert picked(pairs, 2, [1]) == [[[4], 1]]
