"""Chosen ranks as a variable and in job.json, and the variables that they get."""

import pytest

from distdbg.protocol.chosen_ranks import KEY, ChosenRanks, chosen_ranks, of_job

FOUR = ChosenRanks(8, 8, (0, 7, 56, 63))


def test_written_and_read():
    assert chosen_ranks(FOUR.text) == FOUR == of_job({"topology": {KEY: FOUR.text}})


@pytest.mark.parametrize("text", [None, "", 3, "8x8", "8x8:", "8x8:64", "0x8:0", "8x0:0", "axb:0", "8x8:-", "8x8:9-2"])
def test_anything_else_is_none(text):
    assert chosen_ranks(text) is None and of_job({"topology": {KEY: text}}) is None


def test_no_topology():
    assert of_job({}) is None and of_job({"topology": "none"}) is None


def test_a_rank_gets_the_variables_of_the_whole_job():
    found = FOUR.variables(2)
    assert found["RANK"] == "56" and found["LOCAL_RANK"] == "0" and found["GROUP_RANK"] == "7"
    assert found["WORLD_SIZE"] == "64" and found["LOCAL_WORLD_SIZE"] == found["GROUP_WORLD_SIZE"] == "8"
