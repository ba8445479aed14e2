"""Which numbers in tensor names are layers."""

from __future__ import annotations

from distdbg.shrink.checkpoint.layer_names import all_renumbered, numbered_prefixes, renumbered
from distdbg.shrink.checkpoint.stored_names import new_names
from distdbg.shrink.probe.conversions import _in_order


def test_a_layer_that_is_not_kept_has_no_name() -> None:
    assert renumbered("model.layers.4.w", {"model.layers": [0, 3]}) is None
    assert renumbered("model.layers.3.w", {"model.layers": [0, 3]}) == "model.layers.1.w"


def test_a_layer_that_is_kept_twice_has_two_names() -> None:
    assert all_renumbered("layers.3.w", {"layers": [3, 0, 3]}) == ["layers.0.w", "layers.2.w"]


def test_stages_keep_their_numbers() -> None:
    kept = {"enc.stages.1.blocks": [0, 5]}
    assert renumbered("enc.stages.1.blocks.5.w", kept) == "enc.stages.1.blocks.1.w"
    assert renumbered("enc.stages.0.blocks.5.w", kept) == "enc.stages.0.blocks.5.w"


def test_number_of_thousands_of_digits_is_no_layer() -> None:
    long = f"layers.{'7' * 4500}.w"
    assert numbered_prefixes([long, "layers.1.w"]) == {"layers": {1}}
    assert all_renumbered(long, {"layers": [1]}) == [long]
    assert _in_order([long, "layers.10.w", "layers.9.w"]) == ["layers.9.w", "layers.10.w", long]
    assert new_names({long: long}, {"layers": [1]}).new == {long: [long]}
