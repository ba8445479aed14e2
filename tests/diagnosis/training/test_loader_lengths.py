"""`loader-lengths-differ` is judged from what each rank reported of its loader: which ranks may have other lengths."""

import pytest

from distdbg.diagnosis.training.loader_lengths_differ import loader_lengths_differ
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence

LOOP = ("train.py", 12, "main")


def run(*ranks, among=None, totals=None):
    """Of each rank the batches of its loader, and its steps once the loader came to its end (None: it did not).

    `totals` are the backwards of each rank's whole script; None of a rank that was killed. Else there was one pass."""
    among = among or list(range(len(ranks)))
    records = []
    for rank, (batches, steps) in enumerate(ranks):
        reported = [{"number": 0, "batches": batches, "among": among}]
        reported += [] if steps is None else [{"number": 0, "steps": steps}]
        total = steps if totals is None else totals[rank]
        reported += [] if total is None else [{"backwards": total, "by_itself": True}]
        facts = tuple(GuardFact(rank, "loader-lengths-differ", fields, where=LOOP) for fields in reported)
        records.append(RankRecord(rank, rank, 0, "here", guards=facts))
    return list(loader_lengths_differ.run(RunEvidence({}, 1, tuple(records), ())))


def test_one_that_ends_before_the_others_is_reported_with_all_lengths():
    (finding,) = run((8, 8), (7, 7), (8, 8))
    assert "7 to 8" in finding.summary
    assert "7 on rank 1, 8 on ranks 0,2" in finding.cause
    assert finding.ranks == (0, 1, 2)


def test_who_goes_round_a_shorter_loader_more_often_is_left_alone():
    assert run((8, 8), (7, 7), totals=(60, 60)) == []
    assert run((8, 8), (7, 7), totals=(None, 60)) == []  # nobody knows
    assert len(run((8, 8), (7, 7), totals=(64, 56))) == 1


@pytest.mark.parametrize(
    ("ranks", "among"),
    [
        ([(8, 8), (8, 8)], None),
        ([(8, None), (7, None)], None),  # in the middle of the pass, or left on purpose
        ([(8, None), (7, 7)], None),  # the longer one left its loop, too, and nothing hangs
        ([(9, 4), (8, 4)], None),  # a micro-batch is left over: as many steps
        ([(8, 8), (7, 7)], [0]),  # each trains on its own
    ],
)
def test_what_looks_like_it_and_is_right(ranks, among):
    assert run(*ranks, among=among) == []
