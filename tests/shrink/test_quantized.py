"""Names of layers in a quantization config follow the layers."""

from distdbg.shrink.quantized import following, renumbered_names

KEPT = {"model.layers": [0, 5]}


def test_names_follow_and_lost_ones_leave() -> None:
    config = {
        "quant_method": "gptq",
        "bits": 4,
        "modules_to_not_convert": ["lm_head", "model.layers.5.mlp.gate", "model.layers.3.mlp.gate", "re:.*layers.3.*"],
        "dynamic": {"model.layers.5.mlp": {"bits": 8}, "model.layers.4.mlp": {"bits": 8}},
        "desc_act": None,
    }
    assert renumbered_names(config, KEPT) == {
        "quant_method": "gptq",
        "bits": 4,
        "modules_to_not_convert": ["lm_head", "model.layers.1.mlp.gate", "re:.*layers.3.*"],
        "dynamic": {"model.layers.1.mlp": {"bits": 8}},
        "desc_act": None,
    }


MODULES = [f"model.layers.{i}.mlp.{part}" for i in range(6) for part in ("up_proj", "down_proj")]


def test_a_pattern_that_goes_on_matching_the_same_stays() -> None:
    ignored = ["re:.*lm_head", "re:.*down_proj"]
    assert renumbered_names(ignored, KEPT, MODULES) == ignored


def test_a_pattern_about_a_layer_becomes_the_names_of_what_it_matched() -> None:
    ignored = ["re:model\\.layers\\.5\\..*", r"re:.*layers\.[1-4]\."]
    assert renumbered_names(ignored, KEPT, MODULES) == ["model.layers.1.mlp.down_proj", "model.layers.1.mlp.up_proj"]
    dynamic = {r"-:model\.layers\.5\.mlp\.up.*": {}, r"+:.*down_proj": {"bits": 8}}
    assert renumbered_names(dynamic, KEPT, MODULES) == {
        r"-:model\.layers\.1\.mlp\.up_proj": {},
        r"+:.*down_proj": {"bits": 8},
    }


def test_names_that_begin_further_in() -> None:
    assert renumbered_names(["layers.5.mlp", "layers.4.mlp"], KEPT) == ["layers.1.mlp"]
    two = {"text.layers": [0, 5], "vision.layers": [0, 1]}
    assert renumbered_names(["layers.5.mlp"], two) == ["layers.5.mlp"]  # which of the two is meant, it does not say


def test_nested_configs_and_the_older_name() -> None:
    config = {"model_type": "m", "text_config": {"compression_config": {"ignore": ["model.layers.5.mlp"], "n": 5}}}
    new = following(config, KEPT)
    assert new == {"model_type": "m", "text_config": {"compression_config": {"ignore": ["model.layers.1.mlp"], "n": 5}}}
