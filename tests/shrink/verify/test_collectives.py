"""What layers gather and reduce under FSDP2, and that a difference is seen."""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")

from distdbg.shrink.probe.building import Builder, model_class
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.collectives import compare_collectives
from distdbg.shrink.verify.kept import KeptStack
from tests.shrink.verify.test_pictures_and_sounds import IMAGES, SOUNDS

pytestmark = pytest.mark.slow

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 256}


def builder(model_type="llama", **fields):
    return builder_of(model_type, {**TINY, **fields})


def builder_of(model_type, fields):
    quiet()
    config = transformers.CONFIG_MAPPING[model_type](**fields)
    return Builder(config, model_class(config, None, False))


def test_each_layer_as_the_one_it_stands_for():
    full, small = builder(num_hidden_layers=4), builder(num_hidden_layers=2)
    assert compare_collectives(full, small, [KeptStack("model.layers", 4, [0, 3])]) == "pass"


def test_dense_and_expert_layers_are_not_taken_for_each_other():
    fields = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    full = builder("qwen3_moe", num_hidden_layers=4, mlp_only_layers=[0], **fields)
    small = builder("qwen3_moe", num_hidden_layers=2, mlp_only_layers=[0], **fields)
    assert compare_collectives(full, small, [KeptStack("model.layers", 4, [0, 2])]) == "pass"
    said = compare_collectives(full, small, [KeptStack("model.layers", 4, [1, 2])])
    assert said.startswith("fail: model.layers.0 is unlike layer 1 in")


def test_of_layers_of_a_kind_the_last_stands_for_all():
    full, small = builder(num_hidden_layers=9), builder(num_hidden_layers=2)
    stack = KeptStack("model.layers", 9, [0, 1], kinds=[list(range(9))])
    assert [*stack.in_between()] == [f"model.layers.{i}" for i in range(2, 8)]
    assert compare_collectives(full, small, [stack], sampled=True) == "pass"
    wider = builder(num_hidden_layers=2, intermediate_size=64)
    assert compare_collectives(full, wider, [stack], sampled=True).startswith("fail: model.layers.0 is unlike layer 0")


def test_a_tower_that_nothing_reaches_is_not_said_to_pass():
    config = {"num_hidden_layers": 2, **TINY}
    full = builder(**config)
    assert compare_collectives(full, full, []) == "not run, because no collective was seen of any layer"


def test_a_tower_is_reached_with_a_sound():
    full = builder_of("qwen2_audio", SOUNDS["qwen2_audio"])
    stacks = [KeptStack("model.audio_tower.layers", 2, [0, 1]), KeptStack("model.language_model.layers", 2, [0, 1])]
    assert compare_collectives(full, full, stacks) == "pass"


def test_a_difference_in_a_tower_is_seen():
    there = IMAGES["qwen2_5_vl"]
    wider = {**there, "vision_config": {**there["vision_config"], "intermediate_size": 64}}
    stacks = [KeptStack("model.visual.blocks", 4, [*range(4)]), KeptStack("model.language_model.layers", 2, [0, 1])]
    said = compare_collectives(builder_of("qwen2_5_vl", wider), builder_of("qwen2_5_vl", there), stacks)
    assert said.startswith("fail: model.visual.blocks.0 is unlike layer 0 in"), said
