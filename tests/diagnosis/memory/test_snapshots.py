"""Snapshots of several ranks with the same figures are told once."""

from types import SimpleNamespace

from distdbg.diagnosis.memory._snapshots import alike


def answer(rank, size, path=""):
    who = f"rank {rank}" if rank is not None else path
    return SimpleNamespace(rank=rank, ranks=() if rank is None else (rank,), path=path, who=who, size=size)


def told(*answers):
    return [(who, ranks) for _, who, ranks in alike(answers, lambda one: one.size)]


def test_ranks_with_the_same_figures_are_named_together():
    assert told(answer(0, 5), answer(1, 7), answer(2, 5), answer(3, 5)) == [
        ("ranks 0,2-3 each", (0, 2, 3)),
        ("rank 1", (1,)),
    ]


def test_several_snapshots_of_one_rank_and_files_of_no_rank():
    assert told(answer(0, 5, "a"), answer(0, 5, "b")) == [("rank 0", (0,))]
    assert told(answer(None, 5, "a"), answer(None, 5, "b")) == [("a", ()), ("b", ())]
