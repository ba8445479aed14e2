"""What a capture keeps of a recorder's answer: long lists of ranks, folded where nothing is lost."""

import json

from distdbg.collect.machine.recorder import folded
from distdbg.evidence.recorder.log import Signatures, read_recorder


def answer(ranks):
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(ranks)}}
    return json.dumps({"version": "2.10", "pg_config": groups}, separators=(",", ":")).encode()


def test_a_wide_groups_ranks_become_ranges():
    wide = [*range(1000), *range(2000, 4000)]
    kept = folded(answer(wide))
    assert b'"ranks":"[0-999,2000-3999]"' in kept
    assert read_recorder(json.loads(kept), Signatures()) is not None


def test_an_order_of_its_own_and_a_short_list_stay():
    for ranks in ([1, 0, *range(2, 1000)], [0, 1, 2, 3], [*range(500), 499]):
        assert folded(answer(ranks)) == answer(ranks)
