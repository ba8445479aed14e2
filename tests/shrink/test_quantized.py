"""Names of layers in a quantization config follow the layers."""

from distdbg.shrink.quantized import renumbered_names

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
