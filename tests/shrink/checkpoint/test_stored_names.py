"""New names of tensors that a checkpoint names otherwise than the model does."""

from __future__ import annotations

import pytest

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.stored_names import new_names


def test_the_layers_number_is_the_one_that_changes_with_it() -> None:
    modules = {f"encoder.layer.{i}.output.dense2.weight": f"vit.layers.{i}.mlp.fc2.weight" for i in range(4)}
    found = new_names(modules, {"vit.layers": [0, 3]})
    assert found.new["encoder.layer.3.output.dense2.weight"] == ["encoder.layer.1.output.dense2.weight"]
    assert found.new["encoder.layer.1.output.dense2.weight"] == []
    assert found.prefixes["vit.layers"] == {"encoder.layer"}


def test_numbers_of_experts_stay() -> None:
    modules = {f"h.{i}.e.{e}.w": f"layers.{i}.experts.w" for i in range(2) for e in range(2)}
    found = new_names(modules, {"layers": [1]}).new
    assert found["h.1.e.0.w"] == ["h.0.e.0.w"] and found["h.1.e.1.w"] == ["h.0.e.1.w"] and found["h.0.e.1.w"] == []


def test_a_number_that_is_off_by_one() -> None:
    modules = {f"queries.{i}.w": f"layers.{i + 1}.q.w" for i in range(3)}
    found = new_names(modules, {"layers": [0, 1, 3]}).new
    assert found == {"queries.0.w": ["queries.0.w"], "queries.1.w": [], "queries.2.w": ["queries.1.w"]}


def test_a_tensor_of_one_layer_goes_by_the_prefix_of_the_others() -> None:
    modules = {f"block.{i}.layer.0.q": f"stack.{i}.attn.q" for i in range(3)}
    modules["block.1.layer.1.bias"] = "stack.1.attn.bias"
    found = new_names(modules, {"stack": [1]}).new
    assert found["block.1.layer.1.bias"] == ["block.0.layer.1.bias"]


def test_what_is_not_clear_is_refused() -> None:
    with pytest.raises(Refused, match=r"which number in 'a\.1\.b\.1\.w'"):
        new_names({"a.1.b.1.w": "stack.1.w"}, {"stack": [1]})


def test_a_shared_tensor_goes_by_the_name_of_a_layer_that_stays() -> None:
    modules = {f"m.{i}.own": f"m.{i}.own" for i in range(4)} | {"m.1.shared.w": "m.1.shared.w"}
    found = new_names(modules, {"m": [0, 3]}, [["m.1.shared.w", "m.3.shared.w"]]).new
    assert found["m.1.shared.w"] == ["m.1.shared.w"] and found["m.3.own"] == ["m.1.own"]


def test_a_layer_that_is_kept_twice() -> None:
    found = new_names({f"m.{i}.w": f"m.{i}.w" for i in range(3)}, {"m": [2, 0, 2]}).new
    assert found == {"m.0.w": ["m.1.w"], "m.1.w": [], "m.2.w": ["m.0.w", "m.2.w"]}
