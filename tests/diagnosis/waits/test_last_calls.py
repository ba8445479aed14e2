"""Who came to the call that somebody died of with something else, by what all have written down."""

import pytest

from distdbg.diagnosis.waits.last_calls import parted_at_last
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.recorder.calls import Call


def called(*brought, group=""):
    """A rank's calls: (operation, elements) each, the first of them the first of its group."""
    return [
        Call(t, operation, "train.py", 7, "step", number=t, size=size, dtype="float32", group=group)
        for t, (operation, size) in enumerate(brought, 1)
    ]


def dump(*calls):
    return Dump("dump", ranks={r: RankDump(r, 100 + r, 0, "a", (), calls=tuple(c)) for r, c in enumerate(calls)})


REDUCE, MORE, BARRIER = ("all_reduce", 32), ("all_reduce", 40), ("barrier", None)


def test_who_brought_more_is_the_few():
    found = parted_at_last(dump(*([called(REDUCE, REDUCE)] * 2), called(REDUCE, MORE), called(REDUCE, REDUCE)), [0])
    assert found.sides == (("all_reduce of 32 elements (float32)", (0, 1, 3)),
                           ("all_reduce of 40 elements (float32)", (2,)))  # fmt: skip
    assert found.same_operation
    assert not found.tie
    assert found.number == 2


def test_who_left_one_out_is_in_the_next():
    found = parted_at_last(dump(called(REDUCE, BARRIER), *([called(REDUCE, REDUCE, BARRIER)] * 2)), [1, 2])
    assert found is None, "the failed ones were in their third, which the first has not begun"
    found = parted_at_last(dump(called(REDUCE, BARRIER), *([called(REDUCE, REDUCE)] * 2)), [1])
    assert found.sides == (("all_reduce of 32 elements (float32)", (1, 2)), ("barrier", (0,)))
    assert not found.same_operation


def test_two_of_each_are_a_tie():
    assert parted_at_last(dump(called(REDUCE), called(REDUCE), called(MORE), called(MORE)), [3]).tie


@pytest.mark.parametrize(
    ("calls", "apart"),
    [
        pytest.param([called(*[REDUCE] * 4), called(*[REDUCE] * 3, MORE)], (1,), id="a new size"),
        pytest.param([called(*[REDUCE] * 3, MORE), called(*[REDUCE] * 4)], (0,), id="on rank 0"),
        pytest.param([called(*[REDUCE] * 2, MORE), called(*[REDUCE] * 3)], (), id="twice is no rule"),
        pytest.param([called(*[REDUCE] * 3, MORE), called(*[REDUCE] * 3, ("all_reduce", 8))], (), id="both are new"),
        pytest.param([called(REDUCE, MORE, REDUCE, MORE), called(REDUCE, MORE, REDUCE, REDUCE)], (), id="many sizes"),
        pytest.param([called(*[REDUCE] * 3, MORE), called(*[REDUCE] * 3, BARRIER)], (), id="another operation"),
    ],
)
def test_of_two_the_one_whose_line_never_had_that_size(calls, apart):
    found = parted_at_last(dump(*calls), [0])
    assert (found.tie, found.apart) == (True, apart)


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([called(REDUCE), called(REDUCE)], id="all agree"),
        pytest.param([called(MORE, REDUCE), called(REDUCE, REDUCE)], id="an earlier one, that nobody died of"),
        pytest.param([called(REDUCE), []], id="one has not come"),
        pytest.param([called(REDUCE), called(MORE, group="1")], id="another group"),
        pytest.param([[], []], id="no calls"),
    ],
)
def test_nobody_is_named(calls):
    assert parted_at_last(dump(*calls), [0]) is None


def test_a_rank_that_is_not_in_the_dump_tells_nothing():
    assert parted_at_last(dump(called(REDUCE), called(MORE)), [7]) is None
