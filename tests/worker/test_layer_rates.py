"""Which layers break the order of layer-wise learning rates: from rates alone."""

import pytest

from distdbg.worker.guards.parameters import _lists, _odd_ones


@pytest.mark.parametrize(
    ("rates", "odd"),
    [
        ([1, 2, 3, 4, 5], []),
        ([5, 4, 3, 2, 1], []),
        ([9, 2, 3, 4, 5, 6], [0]),
        ([1, 2, 3, {4, 9}, 5, 6], [3]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2, 2], [10, 11]),
        ([1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3], []),  # thirds of the model
        ([{1, 2}, {2, 4}, {3, 6}, {4, 8}, {5, 10}], []),  # biases with twice the rate
        ([1, 1, 1, 1, 1, 1], []),
        ([1, 9, 2], []),
        ([3, 1, 4, 1, 5, 9, 2, 6], []),  # no order at all
    ],
)
def test_odd_ones(rates, odd):
    layers = {n: rate if isinstance(rate, set) else {rate} for n, rate in enumerate(rates)}
    assert _odd_ones({n: {float(r) for r in layer} for n, layer in layers.items()}) == odd


def test_a_name_belongs_to_its_first_list():
    names = {1: "blocks.0.mlp.1.weight", 2: "blocks.1.mlp.0.weight", 3: "head.weight", 4: "blocks.1.bias"}
    assert _lists(names, {1: 0.1, 2: 0.2, 3: 1.0}) == {"blocks": {0: {0.1}, 1: {0.2}}}
