"""Names of layers in a quantization config follow the layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.shrink.checkpoint.quantized import following, renumbered_names
from tests.shrink import models

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


def fp8(folder: Path) -> Path:
    """A llama as FP8 in blocks, as DeepSeek-V3 is published; two modules of it are left as they were."""
    import torch
    from safetensors.torch import load_file, save_file

    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_key_value_heads": 4}
    models.llama(folder, **sizes)
    ignored = ["lm_head", "model.layers.5.mlp.down_proj"]
    found = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if "_proj" not in name or name.rpartition(".")[0] in ignored:
            found[name] = weight
            continue
        scale = weight.abs().amax() / 448
        found |= {name: (weight / scale).to(torch.float8_e4m3fn), f"{name}_scale_inv": scale.reshape(1, 1)}
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    how = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ignored}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    return folder


@pytest.mark.slow
def test_a_quantized_model_loads(tmp_path: Path, distdbg) -> None:
    """transformers would look for scales of the layer that was 5, had its name in the list not followed."""
    done = distdbg("shrink-model", fp8(tmp_path / "large"), tmp_path / "small", "--keep", "0,5")
    assert done.code == 0, done
    said = json.loads((tmp_path / "small" / "shrink.json").read_text())["verified"]
    reloaded = said["save_and_reload"]  # up to transformers 5.23 such a model is loaded, and cannot be saved
    assert said["names_and_shapes"] == "pass" and (reloaded == "pass" or "they load" in reloaded), said
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["quantization_config"]["modules_to_not_convert"] == ["lm_head", "model.layers.1.mlp.down_proj"]
