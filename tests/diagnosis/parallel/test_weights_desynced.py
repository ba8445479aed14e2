"""Checksums of weights, as ranks report them, compared."""

import pytest

from tests.made_run import MadeRun

SAME = [["a.weight", "11111111"], ["b.weight", "22222222"]]
OTHER = [["a.weight", "11111111"], ["b.weight", "33333333"]]


def report(tmp_path, by_rank, **fields):
    """`by_rank`: what each rank reports after each step."""
    run = MadeRun(tmp_path, ranks=len(by_rank), nodes=1)
    for rank, sums in enumerate(by_rank):
        for step, its in sums.items():
            more = {name: value[rank] for name, value in fields.items()}
            run.fact(rank, op="fact", kind="guard", guard="weights-desynced", mode="warn", step=step, where=None,
                     **{"at": step, "each": 1, "sums": its, "machine": "x", "among": list(range(len(by_rank))), **more},
                     t=9.0)  # fmt: skip
        run.script_end(rank)
    run.rest(0)
    return [(f.id, f.ranks, f.step) for f in run.closes().report().findings]


def test_the_rank_apart_from_most_is_named_with_the_first_step(tmp_path):
    by_rank = [{11: SAME, 22: SAME}, {11: SAME, 22: SAME}, {11: SAME, 22: OTHER}]
    assert report(tmp_path, by_rank) == [("weights-desynced", (2,), 22)]


def test_two_ranks_decide_nothing(tmp_path):
    assert report(tmp_path, [{11: SAME}, {11: OTHER}]) == [("weights-desynced", (0, 1), 11)]


@pytest.mark.parametrize(
    ("by_rank", "fields"),
    [
        ([{11: SAME}, {11: SAME}], {}),
        ([{11: SAME}, {22: OTHER}], {}),  # other steps: one rank has made fewer
        ([{11: SAME}, {11: OTHER}], {"machine": ["x", "y"]}),  # the last bit depends on the hardware
        ([{11: SAME}, {11: OTHER}], {"among": [[0, 2], [1, 3]]}),  # they average with others
        ([{11: SAME}, {11: OTHER[:1]}], {}),  # models that differ by rank
        ([{11: SAME}, {11: "none"}], {}),
    ],
)
def test_what_cannot_be_compared_says_nothing(tmp_path, by_rank, fields):
    assert report(tmp_path, by_rank, **fields) == []


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([["a", "b"], ["a", "b"]], [("weights-desynced", (0, 1), 11)]),
        ([["a", "b"], ["a", "c"]], []),  # b.weight began differently: a shard
        ([["a", "b"], None], []),
        ([["a", "b"], ["a"]], []),
    ],
    ids=["equal at the start", "other shards", "start unknown", "start cut short"],
)
def test_without_ddp_only_parameters_that_began_alike_count(tmp_path, starts, found):
    assert report(tmp_path, [{11: SAME}, {11: OTHER}], start=starts) == found
