"""The layers, found by names alone: adapters, state dicts, optimizers, torchtitan, Megatron."""

from __future__ import annotations

import json

import pytest

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.shrink.checkpoint.plain import make_plain
from distdbg.shrink.checkpoint.plain_names import PlainOrder, plain_stacks
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.tensors import read_header
from tests.shrink import checkpoints


def forms(*names, shape=(4, 8)):
    return dict.fromkeys(names, (shape, "F32"))


def layers(prefix, number, *rest):
    return [f"{prefix}.{i}.{r}" for i in range(number) for r in rest or ("attn.w", "mlp.w")]


def kept(found):
    return {stack["path"]: stack["kept"] for stack in found}


@pytest.mark.parametrize(
    "prefix",
    ["layers", "model.layers", "_orig_mod.transformer.h", "module.module.decoder.layers", "model.decoder.layers"],
)
def test_the_layers_are_found(prefix):
    found = plain_stacks(forms("embed.w", "head.w", *layers(prefix, 6)), PlainOrder())
    assert kept(found) == {prefix: [0, 1]} and found[0]["layers"] == 6


def test_a_layer_of_each_kind():
    """torchtitan's DeepSeek-V3: dense layers first, experts (numbered themselves) in the others."""
    names = layers("layers", 2) + [n for n in layers("layers", 5, "attn.w", "moe.experts.0.w", "moe.experts.1.w")
                                   if not n.startswith(("layers.0", "layers.1"))]  # fmt: skip
    assert kept(plain_stacks(forms(*names), PlainOrder())) == {"layers": [0, 2]}


def test_the_optimizer_keeps_what_the_model_keeps():
    names = [*layers("model.layers", 4), *layers("optimizer.state.model.layers", 4, "attn.w.exp_avg", "mlp.w.exp_avg")]
    found = plain_stacks(forms(*names), PlainOrder(keep="ends"))
    assert kept(found) == {"model.layers": [0, 3], "optimizer.state.model.layers": [0, 3]}


def test_a_pattern_that_is_given():
    names = [*layers("encoder.layers", 4), *layers("decoder.layers", 3)]
    for text in ("decoder.layers", "decoder.layers.*", "decoder.layers.{}"):
        assert kept(plain_stacks(forms(*names), PlainOrder(2, pattern=text))) == {"decoder.layers": [0, 1]}
    with pytest.raises(UsageError, match="no number follows 'blocks'") as caught:
        plain_stacks(forms(*names), PlainOrder(pattern="blocks"))
    assert caught.value.remedy == "Numbers follow: decoder.layers, encoder.layers."


@pytest.mark.parametrize("names", [["embed.w", "head.w"], layers("layers", 4)[4:], layers("convs", 3, "w")])
def test_what_counts_no_layers_is_not_taken_for_some(names):
    with pytest.raises(NothingToAnalyse, match="no number"):
        plain_stacks(forms(*names), PlainOrder())


def test_more_layers_than_there_are():
    with pytest.raises(UsageError, match="has 3 layers"):
        plain_stacks(forms(*layers("layers", 3)), PlainOrder(4))


def test_an_adapter_and_its_config(tmp_path):
    base = "base_model.model.model.layers"
    source = tmp_path / "adapter"
    source.mkdir()
    names = [f"{base}.{i}.self_attn.q_proj.{x}.weight" for i in range(2, 8) for x in ("lora_A", "lora_B")]
    data = checkpoints.write(source / "adapter_model.safetensors", names)
    config = {"peft_type": "LORA", "r": 8, "layers_to_transform": [2, 3, 4, 5, 6, 7],
              "rank_pattern": {"model.layers.3.self_attn.q_proj": 4, "model.layers.7.self_attn.q_proj": 2},
              "target_modules": ["q_proj"]}  # fmt: skip
    (source / "adapter_config.json").write_text(json.dumps(config))
    made = make_plain(str(source), tmp_path / "small", PlainOrder(keep="0,7"))
    assert made["verified"]["weights"].startswith("pass") and made["model_type"] == "adapter"
    small = read_header(Folder(tmp_path / "small"), "adapter_model.safetensors")
    assert set(small) == {f"{base}.1.self_attn.q_proj.{x}.weight" for x in ("lora_A", "lora_B")}
    written = (tmp_path / "small" / "adapter_model.safetensors").read_bytes()
    for name, tensor in small.items():
        assert written[tensor.start : tensor.start + tensor.length] == data[name.replace("layers.1.", "layers.7.")]
    after = json.loads((tmp_path / "small" / "adapter_config.json").read_text())
    assert after["layers_to_transform"] == [1] and after["target_modules"] == ["q_proj"]
    assert after["rank_pattern"] == {"model.layers.1.self_attn.q_proj": 2}
    assert any("same --keep" in warning for warning in made["warnings"])


def test_a_safetensors_file_alone(tmp_path, distdbg):
    checkpoints.write(tmp_path / "titan.safetensors", ["tok.w", *layers("layers", 5)])
    done = distdbg("shrink-model", "titan.safetensors", "small", "--keep", "last")
    assert done.code == 0, done
    assert "layers: kept 3,4 of 5 layers" in done.out and "no model was built" in done.err
    assert set(read_header(Folder(tmp_path / "small"), "titan.safetensors")) == {"tok.w", *layers("layers", 2)}
    refused = distdbg("shrink-model", "titan.safetensors", "other", "--random")
    assert (refused.code, "has no config" in refused.err) == (2, True), refused
