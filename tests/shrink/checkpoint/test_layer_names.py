"""Which numbers in tensor names are layers."""

from __future__ import annotations

import pytest

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.layer_names import match_stacks, renumbered


def names(prefix: str, layers: int, *rest: str) -> list[str]:
    return [f"{prefix}.{i}.{r}" for i in range(layers) for r in rest or ("w",)]


def test_experts_are_no_layers() -> None:
    found = names("model.layers", 4, *(f"mlp.experts.{e}.up" for e in range(4)))
    assert match_stacks({"model.layers": 4}, found) == {"model.layers": "model.layers"}


def test_prefixes_may_be_others_than_the_models() -> None:
    found = [*names("language_model.model.layers", 3), *names("vision_tower.blocks", 3)]
    stacks = {"model.language_model.layers": 3, "model.visual.blocks": 3}
    assert match_stacks(stacks, found) == {
        "model.language_model.layers": "language_model.model.layers",
        "model.visual.blocks": "vision_tower.blocks",
    }


def test_a_layer_more_than_the_model_reads_is_dropped() -> None:
    found = names("model.layers", 5)
    assert match_stacks({"model.layers": 4}, found) == {"model.layers": "model.layers"}
    assert renumbered("model.layers.4.w", {"model.layers": [0, 3]}) is None
    assert renumbered("model.layers.3.w", {"model.layers": [0, 3]}) == "model.layers.1.w"


def test_encoder_and_decoder_are_distinguished() -> None:
    found = [*names("encoder.block", 6, "layer.0.q", "layer.1.w"), *names("decoder.block", 6, "layer.0.q")]
    assert match_stacks({"encoder.block": 6, "decoder.block": 6}, found) == {
        "encoder.block": "encoder.block",
        "decoder.block": "decoder.block",
    }


def test_stages_keep_their_numbers() -> None:
    kept = {"enc.stages.1.blocks": [0, 5]}
    assert renumbered("enc.stages.1.blocks.5.w", kept) == "enc.stages.1.blocks.1.w"
    assert renumbered("enc.stages.0.blocks.5.w", kept) == "enc.stages.0.blocks.5.w"


def test_weights_of_another_model_are_refused() -> None:
    with pytest.raises(Refused, match=r"no tensor of the checkpoint is named as the 4 layers of 'model.layers'"):
        match_stacks({"model.layers": 4}, names("model.layers", 3))
