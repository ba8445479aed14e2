"""Sets of ranks: what they hold, and how they are written."""

from hypothesis import given
from hypothesis import strategies as st

from distdbg.evidence.rank_set import RankSet
from distdbg.model import fold_ranks, unfold_ranks

RANKS = st.sets(st.integers(0, 3000), max_size=60)


@given(RANKS, RANKS)
def test_it_is_a_set(a, b):
    one, other = RankSet.of(a), RankSet.of(b)
    assert list(one) == sorted(a)
    assert len(one) == len(a) and bool(one) == bool(a)
    assert set(one | other) == a | b
    assert set(one & other) == a & b
    assert set(one - other) == a - b
    assert one.text() == fold_ranks(a)
    assert one.first == min(a, default=-1)
    assert all(rank in one for rank in a)


@given(RANKS, st.integers(12, 60))
def test_a_long_list_is_cut_between_two_entries_and_counted(ranks, most):
    text = RankSet.of(ranks).text(most)
    kept, _, rest = text.partition(",…(+")
    assert set(unfold_ranks(kept)) <= ranks
    hidden = int(rest[:-1]) if rest else 0
    assert len(unfold_ranks(kept)) + hidden == len(ranks)
    assert len(text) <= most + 6


def test_a_million_ranks_are_one_span():
    assert RankSet.of(range(1_000_000)).text() == "0-999999"
