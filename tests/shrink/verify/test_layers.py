"""Each kept layer does what the one that it stands for does with the same inputs, and a difference is seen."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import KeptStack
from distdbg.shrink.verify.layers import RecordedCalls, compare_layers
from tests.shrink.verify.builders import builder, builder_of, real_run
from tests.shrink.verify.test_pictures_and_sounds import IMAGES, SOUNDS

pytestmark = pytest.mark.slow

LAYER_CHECKS = ("ops", "activation_bytes", "gradients", "each_layer")


def test_each_layer_as_the_one_it_stands_for():
    full, small = builder(num_hidden_layers=4), builder(num_hidden_layers=2)
    said = real_run(full, small, [KeptStack("model.layers", 4, [0, 3], kinds=[[0, 1, 2, 3]])])
    assert {said[check] for check in LAYER_CHECKS} == {"pass"}


def test_dense_and_expert_layers_are_not_taken_for_each_other():
    fields = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    full = builder("qwen3_moe", num_hidden_layers=4, mlp_only_layers=[0], **fields)
    small = builder("qwen3_moe", num_hidden_layers=2, mlp_only_layers=[0], **fields)
    assert real_run(full, small, [KeptStack("model.layers", 4, [0, 2])])["ops"] == "pass"
    said = real_run(full, small, [KeptStack("model.layers", 4, [1, 2])])
    assert said["ops"].startswith("fail: model.layers: operators of model.layers.0 are not those of model.layers.1")


def test_experts_are_compared_with_the_same_inputs_in_any_order():
    """What a router chooses depends on its inputs, which other layers give in another order."""
    fields = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    full, small = (builder("qwen3_moe", num_hidden_layers=n, **fields) for n in (4, 2))
    said = real_run(full, small, [KeptStack("model.layers", 4, [3, 1], kinds=[[0, 1, 2, 3]])])
    assert {said[check] for check in LAYER_CHECKS} == {"pass"}


def test_a_layer_that_no_input_reaches_does_not_pass():
    """Layer 1 of the text looks at images alone."""
    model, calls = builder_of("mllama", IMAGES["mllama"]).with_random_weights(), RecordedCalls()
    stack = KeptStack("model.language_model.layers", 4, [*range(4)])
    calls.record(model, model, inputs_for(model), [f"{stack.path}.{number}" for number in range(4)])
    said = compare_layers(model, model, [stack], calls)
    assert said["ops"] == "not run, because model.language_model.layers: no input reaches its layer 1"


def test_a_tower_is_reached_with_a_sound():
    full = builder_of("qwen2_audio", SOUNDS["qwen2_audio"])
    stacks = [KeptStack("model.audio_tower.layers", 2, [0, 1]), KeptStack("model.language_model.layers", 2, [0, 1])]
    said = real_run(full, full, stacks)
    assert {said[check] for check in LAYER_CHECKS} == {"pass"}


def test_a_difference_in_a_tower_is_seen():
    there = IMAGES["qwen2_5_vl"]
    wider = {**there, "vision_config": {**there["vision_config"], "hidden_act": "gelu"}}
    stacks = [KeptStack("model.visual.blocks", 4, [*range(4)]), KeptStack("model.language_model.layers", 2, [0, 1])]
    said = real_run(builder_of("qwen2_5_vl", wider), builder_of("qwen2_5_vl", there), stacks)
    assert said["ops"].startswith("fail: model.visual.blocks: operators of model.visual.blocks.0"), said
