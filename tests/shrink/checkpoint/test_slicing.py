"""Byte ranges of parts of tensors, against numpy's own indexing."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.slicing import Cut, joined, pieces
from distdbg.shrink.checkpoint.tensors import Tensor


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_cut_of_any_tensor(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1), max_size=len(shape)))
    cuts = [Cut(d, tuple(data.draw(st.lists(st.integers(0, shape[d] - 1), min_size=1, max_size=4)))) for d in dims]
    array = numpy.arange(numpy.prod(shape), dtype="<u2").reshape(shape)
    raw = b"junk!!!!" + array.tobytes()
    (piece,), dropped = pieces([Tensor("t", "U16", shape, "f", 8, array.nbytes)], lambda name: [name], {"t": cuts})
    expected = array
    for cut in cuts:
        expected = numpy.take(expected, cut.kept, axis=cut.dim)
    assert b"".join(raw[s : s + n] for s, n in piece.ranges) == expected.tobytes()
    assert piece.shape == expected.shape and piece.length == expected.nbytes and not dropped


def test_ranges_that_touch_are_one() -> None:
    assert joined([(0, 4), (4, 4), (9, 1)]) == [(0, 8), (9, 1)]


def test_half_a_byte_is_refused() -> None:
    with pytest.raises(Refused, match="begins inside a byte"):
        pieces([Tensor("t", "F4", (4, 3), "f", 0, 6)], lambda name: [name], {"t": [Cut(0, (1,))]})
