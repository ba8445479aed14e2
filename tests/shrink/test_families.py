"""Tiny models of many makes, from weights to weights: what is kept loads, and every check passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, Refused, UsageError
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from tests.shrink import models
from tests.shrink.models import TINY

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MLA = {"kv_lora_rank": 8, "q_lora_rank": 16, "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 8}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
#: model type -> (Auto class, settings, {stack: layers kept by --layers auto})
FAMILIES = {
    "llama": ("AutoModelForCausalLM", {**TINY, "num_hidden_layers": 5}, {"model.layers": [0, 1]}),
    "gpt2": (
        "AutoModelForCausalLM",
        {**IDS, "n_embd": 32, "n_head": 4, "n_layer": 5, "vocab_size": 64, "n_positions": 32},
        {"transformer.h": [0, 1]},
    ),
    "qwen3_moe": (
        "AutoModelForCausalLM",
        {**TINY, **MOE, "num_hidden_layers": 6, "num_experts": 4, "mlp_only_layers": [0, 3], "head_dim": 8},
        {"model.layers": [0, 1]},
    ),
    "deepseek_v3": (
        "AutoModelForCausalLM",
        {**TINY, **MLA, **MOE, "num_key_value_heads": 4, "num_hidden_layers": 5, "n_routed_experts": 4, "n_group": 2,
         "topk_group": 1, "first_k_dense_replace": 3},
        {"model.layers": [0, 3]},
    ),
    "gemma3_text": (
        "AutoModelForCausalLM",
        {**TINY, "num_hidden_layers": 8, "head_dim": 8, "sliding_window": 16},
        {"model.layers": [0, 5]},
    ),
    "jamba": (
        "AutoModelForCausalLM",
        {**TINY, "num_hidden_layers": 8, "num_experts": 4, "mamba_d_state": 4, "mamba_dt_rank": 4,
         "use_mamba_kernels": False},
        {"model.layers": [0, 1, 4]},
    ),
    "qwen3_next": (
        "AutoModelForCausalLM",
        {**TINY, **MOE, "num_hidden_layers": 8, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
         "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 4, "shared_expert_intermediate_size": 16},
        {"model.layers": [0, 3]},
    ),
    "t5": (
        "AutoModelForSeq2SeqLM",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 5, "num_decoder_layers": 4, "num_heads": 4,
         "vocab_size": 64, "decoder_start_token_id": 0},
        {"encoder.block": [0, 1], "decoder.block": [0, 1]},
    ),
    "whisper": (
        "AutoModelForSpeechSeq2Seq",
        {**IDS, "vocab_size": 64, "num_mel_bins": 8, "encoder_layers": 4, "decoder_layers": 3, "d_model": 16,
         "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
         "max_source_positions": 20, "max_target_positions": 16, "decoder_start_token_id": 1},
        {"model.encoder.layers": [0, 1], "model.decoder.layers": [0, 1]},
    ),
    "swin": (
        "AutoModelForImageClassification",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 4], "num_heads": [2, 4], "window_size": 4},
        {"swin.encoder.layers.0.blocks": [0, 1], "swin.encoder.layers.1.blocks": [0, 1]},
    ),
    "sam2_hiera_det_model": (
        "AutoModel",
        {"hidden_size": 16, "image_size": [64, 64], "blocks_per_stage": [1, 2, 6, 2],
         "embed_dim_per_stage": [16, 32, 64, 128], "global_attention_blocks": [4, 6]},
        {"blocks": [0, 1, 2, 3, 4, 5, 9, 10]},
    ),
    "qwen3_vl": (
        "AutoModelForImageTextToText",
        {"text_config": {**TINY, "num_hidden_layers": 6, "head_dim": 8, "rope_parameters":
            {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}},
         "vision_config": {"depth": 7, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2,
            "out_hidden_size": 32, "deepstack_visual_indexes": [1, 3, 5],
            "num_position_embeddings": 16, "patch_size": 4},
         "image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63},
        {"model.language_model.layers": [0, 1, 2], "model.visual.blocks": [0, 1, 3, 5]},
    ),
    "vit": (
        "AutoModelForImageClassification",
        {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 5, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 8},
        {"vit.layers": [0, 1]},
    ),
    "clip": (
        "AutoModel",
        {"text_config": {**IDS, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 5,
            "num_attention_heads": 2, "vocab_size": 64},
         "vision_config": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 5,
            "num_attention_heads": 2, "image_size": 16, "patch_size": 8}},
        {"text_model.encoder.layers": [0, 1], "vision_model.encoder.layers": [0, 1]},
    ),
}  # fmt: skip


def shrunk(source: Path, to: Path, **order) -> dict:
    return make(open_source(str(source)), to, ShrinkRequest(**order))


#: in transformers 4 a module has another name, and Jamba's experts follow a rule that is true of the first layers alone
KEPT_BEFORE_5 = {"vit": {"vit.encoder.layer": [0, 1]}, "jamba": {"model.layers": [0, 1, 2, 3, 4]}}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_one_layer_of_each_kind_is_kept_and_every_check_passes(model_type: str, tmp_path: Path) -> None:
    auto, settings, kept = FAMILIES[model_type]
    kept = KEPT_BEFORE_5.get(model_type, kept) if models.before_5() else kept
    made = shrunk(models.save(tmp_path / "large", model_type, auto, **settings), tmp_path / "small")
    assert {s["path"]: s["kept"] for s in made["stacks"]} == kept
    assert all(kind["kept"] for stack in made["stacks"] for kind in stack["kinds"])
    verified = {check: said.partition(";")[0] for check, said in made["verified"].items()}
    checks = "kinds ops activation_bytes gradients each_layer names_and_shapes save_and_reload weights"
    checks += " stored_names outputs runs"
    if auto in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq",
                "AutoModelForImageTextToText"):  # fmt: skip
        checks += " generate"
    modalities = {"vit": ["image"], "whisper": ["audio"], "swin": ["image"], "sam2_hiera_det_model": ["image"],
                  "clip": ["image"], "qwen3_vl": ["image", "video"]}  # fmt: skip
    for modality in modalities.get(model_type, ()):
        assert verified.pop(f"gradients_{modality}") == "pass"
    assert verified == dict.fromkeys(checks.split(), "pass")
    assert json.loads((tmp_path / "small" / "shrink.json").read_text()) == made


def test_derived_lists_that_a_config_leaves_out_are_written(tmp_path: Path) -> None:
    """gemma3 in the hub names no layer_types: which layers slide follows from their number."""
    _, settings, _ = FAMILIES["gemma3_text"]
    source = models.save(tmp_path / "large", "gemma3_text", **settings)
    config = json.loads((source / "config.json").read_text())
    del config["layer_types"]
    (source / "config.json").write_text(json.dumps(config))
    made = shrunk(source, tmp_path / "small")
    small = json.loads((tmp_path / "small" / "config.json").read_text())
    assert made["stacks"][0]["kept"] == [0, 5]
    assert small["layer_types"] == ["sliding_attention", "full_attention"]


def test_a_lost_kind_is_reported(tmp_path: Path) -> None:
    """Without an attention layer the forward pass of this model raises with its own defaults."""
    auto, settings, _ = FAMILIES["jamba"]
    source = models.save(tmp_path / "large", "jamba", auto, **settings)
    with pytest.raises(Refused, match="runs: forward with the model's own defaults raises"):
        shrunk(source, tmp_path / "refused", layers=2, keep="first")
    made = shrunk(source, tmp_path / "small", layers=2, keep="first", verify="none")
    assert made["stacks"][0]["kept"] == [0, 1]
    assert any("is not kept" in w and "4" in w for w in made["warnings"]), made["warnings"]


def test_each_stack_may_have_its_own_number(tmp_path: Path) -> None:
    auto, settings, _ = FAMILIES["whisper"]
    source = models.save(tmp_path / "large", "whisper", auto, **settings)
    made = shrunk(source, tmp_path / "small", stacks={"encoder": 3, "decoder": 1})
    assert {s["path"]: len(s["kept"]) for s in made["stacks"]} == {"model.encoder.layers": 3, "model.decoder.layers": 1}
    with pytest.raises(UsageError, match=r"--stack vision=1: no stack answers to it"):
        shrunk(source, tmp_path / "other", stacks={"vision": 1})


@pytest.mark.parametrize("keep", ["0-1,-1", "3,1", "2,2,0", "first:2,last:1"])
def test_ranges_ends_and_any_order(keep: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    kept = {"0-1,-1": [0, 1, 5], "3,1": [3, 1], "2,2,0": [2, 2, 0], "first:2,last:1": [0, 1, 5]}[keep]
    made = shrunk(models.llama(tmp_path / "large"), tmp_path / "small", keep=keep)
    assert made["stacks"][0]["kept"] == kept
    assert bool(made["warnings"]) == (kept != sorted(set(kept)))
    is_in_order = kept == sorted(set(kept))  # other orders have no full model to compare outputs with
    assert {check for check, said in made["verified"].items() if said.partition(";")[0] != "pass"} == (
        set() if is_in_order else {"outputs"}
    )
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("large", "small"))
    for new, old in enumerate(kept):
        assert after[f"model.layers.{new}.mlp.up_proj.weight"].equal(before[f"model.layers.{old}.mlp.up_proj.weight"])


@pytest.mark.parametrize(("keep", "kept"), [("first", [0, 1, 2]), ("last", [3, 4, 5]), ("ends", [0, 1, 5])])
def test_which_layers(keep: str, kept: list[int], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    made = shrunk(models.llama(tmp_path / "large"), tmp_path / "small", layers=3, keep=keep, verify="none")
    assert made["stacks"][0]["kept"] == kept
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("large", "small"))
    for new, old in enumerate(kept):
        assert after[f"model.layers.{new}.mlp.up_proj.weight"].equal(before[f"model.layers.{old}.mlp.up_proj.weight"])


MLLAMA = {
    "text_config": {**TINY, "num_hidden_layers": 5, "cross_attention_layers": [1, 3],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "vision_config": {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 6, "num_global_layers": 2,
        "attention_heads": 2, "image_size": 16, "patch_size": 8, "max_num_tiles": 2, "vision_output_dim": 64,
        "intermediate_layers_indices": [1, 3, 5], "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]},
    "image_token_index": 60,
}  # fmt: skip


def test_a_small_model_that_raises_where_the_full_one_runs_is_refused(tmp_path: Path) -> None:
    """The vision tower of mllama gives what its tapped layers gave: with two of them less, each image raises."""
    source = models.save(tmp_path / "large", "mllama", "AutoModelForImageTextToText", **MLLAMA)
    made = shrunk(source, tmp_path / "small")
    assert made["verified"]["gradients_image"] == "pass"
    with pytest.raises(Refused, match="raises"):
        shrunk(source, tmp_path / "other", layers=2)
    assert not (tmp_path / "other").exists()


def test_a_head_that_the_source_lacks_is_made_anew(tmp_path: Path) -> None:
    source = models.save(tmp_path / "large", "bert", "AutoModel", **TINY, num_hidden_layers=4)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}))
    made = shrunk(source, tmp_path / "small", keep="1,3")
    assert made["verified"]["stored_names"] == "pass"
    assert made["verified"]["names_and_shapes"].startswith("pass; the source lacks 2 tensors")


@pytest.mark.parametrize("model_type", ["xlm", "flaubert"])
def test_lists_beside_each_other_are_renumbered_together(model_type: str, tmp_path: Path) -> None:
    """A layer of XLM is an entry in each of four lists, of which one alone looks like a stack."""
    from safetensors.torch import load_file

    source = models.save(tmp_path / "large", model_type, "AutoModelForMaskedLM", emb_dim=16, n_layers=6, n_heads=2,
                         n_words=64, max_position_embeddings=32)  # fmt: skip
    made = shrunk(source, tmp_path / "small", keep="0,5")
    assert made["verified"]["stored_names"] == "pass"
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("large", "small"))
    for part in ("attentions.{}.q_lin.weight", "ffns.{}.lin1.weight", "layer_norm1.{}.bias", "layer_norm2.{}.weight"):
        old, new = (next(v for n, v in state.items() if n.endswith(part.format(number)))
                    for state, number in ((before, 5), (after, 1)))  # fmt: skip
        assert old.equal(new), part


@pytest.mark.parametrize(
    ("order", "error", "says"),
    [
        ({"layers": 7}, UsageError, "--layers 7: the config counts 6 layers at most"),
        ({"keep": "0,9"}, UsageError, "0 to 5"),
        ({"keep": "-7"}, UsageError, "0 to 5"),
        ({"keep": "5-0"}, UsageError, "as many as before"),
        ({"keep": "some"}, UsageError, "is no list of layers"),
    ],
)
def test_wishes_that_cannot_be_met(order: dict, error: type, says: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=says):
        shrunk(models.llama(tmp_path / "large"), tmp_path / "small", **order)
    assert [p.name for p in tmp_path.iterdir() if p.name != "home"] == ["large"]


def test_sharded_weights_and_tied_ones(tmp_path: Path) -> None:
    source = models.llama(tmp_path / "large", tie_word_embeddings=True, save_max_shard_size="30KB")
    assert len(list(source.glob("*.safetensors"))) > 3
    made = shrunk(source, tmp_path / "small", verify="full")
    assert made["verified"]["weights"] == "pass" and "lm_head.weight" not in made["renamed"].values()


def test_a_layer_that_the_model_ignores_is_dropped(tmp_path: Path) -> None:
    """Multi-token prediction is stored as one layer more than the config counts."""
    from safetensors.torch import load_file, save_file

    source = models.llama(tmp_path / "large")
    weights = load_file(source / "model.safetensors")
    extra = {n.replace("layers.0.", "layers.6."): v.clone() for n, v in weights.items() if "layers.0." in n}
    save_file({**weights, **extra}, source / "model.safetensors", metadata={"format": "pt"})
    made = shrunk(source, tmp_path / "small")
    assert {n for n in made["dropped"] if ".6." in n} == set(extra)
    assert made["verified"]["names_and_shapes"] == "pass"


def test_pickled_weights_by_the_safe_loader(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    source = models.llama(tmp_path / "large")
    weights = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    torch.save(weights, source / "pytorch_model.bin")
    made = shrunk(source, tmp_path / "small", keep="0,5")
    small = load_file(tmp_path / "small" / "model.safetensors")
    assert torch.equal(small["model.layers.1.mlp.up_proj.weight"], weights["model.layers.5.mlp.up_proj.weight"])
    assert made["renamed"]["model.layers.5.mlp.up_proj.weight"] == "model.layers.1.mlp.up_proj.weight"
    assert not (tmp_path / "small" / "pytorch_model.bin").exists()


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    import os
    import pickle

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    source = models.llama(tmp_path / "large")
    (source / "model.safetensors").unlink()
    (source / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(EvidenceUnreadable, match="safe loader"):
        shrunk(source, tmp_path / "small")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "small").exists()


def test_nan_weights_are_copied_as_they_are(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    source = models.llama(tmp_path / "large")
    weights = {n: v.fill_(float("nan")) for n, v in load_file(source / "model.safetensors").items()}
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    made = shrunk(source, tmp_path / "small", verify="full")
    assert made["verified"]["save_and_reload"] == "pass"
    assert made["warnings"] == ["every weight that was looked at is NaN; they are copied as they are"]


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    source = models.llama(tmp_path / "large")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 9}))
    with pytest.raises(Refused, match=r"the config makes 9 layers .* has tensors of 6 of them"):
        shrunk(source, tmp_path / "small")
    (source / "config.json").write_text(json.dumps({**config, "intermediate_size": 50}))
    with pytest.raises(Refused, match="names_and_shapes"):
        shrunk(source, tmp_path / "small")
    assert not (tmp_path / "small").exists() and not list(tmp_path.glob(".small*"))


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ("{", EvidenceUnreadable, "is not JSON"),
        ("[]", EvidenceUnreadable, "no 'model_type'"),
        ('{"model_type": "no-such"}', EvidenceUnreadable, "not a model's config"),
        ('{"model_type": "llama", "auto_map": {"AutoConfig": "evil.C"}}', Refused, "--trust-remote-code"),
        ('{"model_type": "llama", "hidden_size": 7}', Refused, "cannot be built|not a model's config"),
        ('{"model_type": "llama", "num_hidden_layers": -1}', EvidenceUnreadable, "num_hidden_layers .* is -1"),
        (
            '{"model_type": "llama", "use_cache": [1]}',
            EvidenceUnreadable,
            r"\d: Validation error for field 'use_cache'",
        ),
        ('\ufeff{"model_type": "mobilenet_v1"}', Refused, "nothing in the config counts"),
        ('{"model_type": "mobilenet_v1"}', Refused, "nothing in the config counts"),
    ],
)
def test_configs_that_are_no_models(config: str, error: type, says: str, tmp_path: Path) -> None:
    if "use_cache" in config and models.before_5():
        pytest.skip("transformers 4 does not check a config's types")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(config)
    with pytest.raises((error, EvidenceUnreadable), match=says):
        shrunk(tmp_path / "m", tmp_path / "small", random=True)
    assert not (tmp_path / "small").exists()


def test_a_side_file_that_is_none_is_reported_before_the_probe(tmp_path: Path) -> None:
    source = models.llama(tmp_path / "large")
    (source / "chat_template.jinja").symlink_to("nowhere")
    (source / "config.json").write_text('{"model_type": "no-such"}')  # which only the probe would tell
    with pytest.raises(EvidenceUnreadable, match=r"chat_template\.jinja cannot be opened"):
        shrunk(source, tmp_path / "small")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(NothingToAnalyse, match=r"has no config\.json"):
        shrunk(tmp_path / "m", tmp_path / "small")
    (tmp_path / "m" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(NothingToAnalyse, match="no weights"):
        shrunk(tmp_path / "m", tmp_path / "small")


def test_over_http(tmp_path: Path) -> None:
    from tests.shrink import ranges

    source = models.llama(tmp_path / "large", save_max_shard_size="30KB")
    with ranges.served(source) as url:
        made = shrunk(url, tmp_path / "small")  # type: ignore[arg-type]
    assert made["verified"]["names_and_shapes"] == "pass"
    assert (tmp_path / "small" / "generation_config.json").exists()


def test_what_stands_between_layers_is_cut_with_them(tmp_path: Path) -> None:
    """yolos adds an embedding behind each layer but the last."""
    from safetensors.torch import load_file

    settings = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 5, "num_attention_heads": 2,
                "image_size": [16, 16], "patch_size": 8, "num_detection_tokens": 3}  # fmt: skip
    source = models.save(tmp_path / "large", "yolos", "AutoModelForObjectDetection", **settings)
    made = shrunk(source, tmp_path / "small", keep="0,2,4")
    name = "vit.encoder.mid_position_embeddings"
    before = load_file(source / "model.safetensors")[name]
    after = load_file(tmp_path / "small" / "model.safetensors")[name]
    assert made["sliced"][name] == {"from": list(before.shape), "to": list(after.shape)}
    assert after.equal(before[[0, 2]])
