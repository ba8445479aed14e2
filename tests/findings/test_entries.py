"""The catalogue is data that people search by id."""

import pytest

from distdbg.findings import FAMILIES


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__.rpartition(".")[2])
def test_entries_are_in_the_order_of_their_ids(family) -> None:
    ids = [entry.id for entry in family.ENTRIES]
    assert ids == sorted(ids)
