"""Fewer experts, fewer tokens, less width: which field counts them is found, and what is left runs."""

from __future__ import annotations

import json

import pytest

from distdbg.errors import Refused, UsageError
from distdbg.shrink.checkpoint.places import places_of
from tests.shrink import models

SIZES = {**models.TINY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}


def narrowed(model_type, wanted, **fields):
    transformers = pytest.importorskip("transformers")
    from distdbg.shrink.probe.building import Builder, model_class
    from distdbg.shrink.probe.narrowing import narrowed
    from distdbg.shrink.probe.task import quiet

    quiet()
    config = transformers.CONFIG_MAPPING[model_type](**fields)
    builder = Builder(config, model_class(config, None, False))
    found = narrowed(builder, wanted)
    return builder, {path: value for one in found for path, value in one.edits.items()}, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "wanted", "edits", "fields"),
    [
        ("mixtral", {"experts": 2}, {"num_local_experts": 2}, {**SIZES, "num_local_experts": 8}),
        ("gpt_oss", {"experts": 4}, {"num_local_experts": 4}, {**SIZES, "num_local_experts": 8, "head_dim": 16}),
        ("llama", {"vocab": 10}, {"vocab_size": 10}, SIZES),
        ("t5", {"vocab": 100}, {"vocab_size": 100}, {"num_layers": 2}),
        ("gpt2", {"width": 0.5}, {"n_embd": 384}, {"n_layer": 2}),
    ],
)
def test_the_field_is_found(model_type, wanted, edits, fields):
    builder, found, _ = narrowed(model_type, wanted, **fields)
    assert {path[-1]: value for path, value in found.items()} == edits
    assert not isinstance(builder.anatomy(builder.full), Exception)


@pytest.mark.slow
def test_all_sizes_of_a_layer_become_less():
    _, edits, (one,) = narrowed("llama", {"width": 0.5}, **SIZES)
    assert {"hidden_size", "intermediate_size", "num_attention_heads"} <= {path[-1] for path in edits}
    assert one.random and edits[("hidden_size",)] == 32 and ("vocab_size",) not in edits


@pytest.mark.slow
def test_a_tower_and_the_text_still_fit_each_other():
    """The tower gives rows as wide as the text's: `out_hidden_size` changes no layer, and must follow them."""
    text = {**SIZES, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}}
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64, "intermediate_size": 48,
              "fullatt_block_indexes": [1]}  # fmt: skip
    ids = {"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}
    _, edits, (one,) = narrowed("qwen2_5_vl", {"width": 0.5}, text_config=text, vision_config=vision, **ids)
    changed = {".".join(map(str, path)): value for path, value in edits.items()}
    assert changed["text_config.hidden_size"] == changed["vision_config.out_hidden_size"] == 32
    assert changed["vision_config.hidden_size"] == 16 and one.random
    assert not {"vision_config.patch_size", "vision_config.spatial_merge_size"} & changed.keys()


@pytest.mark.slow
def test_the_processors_images_still_fit():
    """Of BEiT each layer has a tensor with a row a pair of patches: `image_size` is a size of its layers."""
    fields = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 2}
    builder, edits, _ = narrowed("beit", {"width": 0.5}, use_relative_position_bias=True, image_size=32, patch_size=8,
                                 **fields)  # fmt: skip
    assert edits[("hidden_size",)] == 32 and builder.full["image_size"] == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "wanted", "error", "said", "fields"),
    [
        ("llama", {"experts": 2}, Refused, "no field of the config counts experts", SIZES),
        ("mixtral", {"experts": 8}, UsageError, "the model has 8", {**SIZES, "num_local_experts": 8}),
        ("mixtral", {"experts": 1}, Refused, "does not run", {**SIZES, "num_local_experts": 8}),
        ("llama", {"vocab": 64}, UsageError, "the model has 64 rows", SIZES),
        ("llama", {"vocab": 9}, Refused, "no field of the config gives", {**SIZES, "pad_token_id": 20}),
        ("vit", {"vocab": 5}, Refused, "no vocabulary", {"num_hidden_layers": 2}),
        ("llama", {"width": 2.0}, UsageError, "between 0 and 1", SIZES),
    ],
)
def test_what_cannot_be_is_refused(model_type, wanted, error, said, fields):
    with pytest.raises(error, match=said):
        narrowed(model_type, wanted, **fields)


def places(shapes, narrowed):
    stack = {"path": "model.layers", "also": [], "layers": 2, "kept": [1]}
    found = places_of(shapes, {"stacks": [stack], "cuts": {}, "narrowed": narrowed}, {name: name for name in shapes})
    return found.kept, found.cuts


def experts(**cuts):
    held = ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"]
    return [{"cuts": cuts, "experts": held, "from": "4", "to": "2"}]


def test_experts_that_a_checkpoint_numbers_under_other_names():
    """Mixtral: the model has mlp.gate and fused experts, its checkpoints block_sparse_moe.gate and experts.0.w1."""
    shapes = {f"model.layers.{i}.moe.experts.{e}.w1.weight": (8, 8) for i in range(2) for e in range(4)}
    shapes |= {f"model.layers.{i}.moe.gate.weight": (4, 8) for i in range(2)}
    shapes |= {f"model.layers.{i}.attn.gate.weight": (4, 8) for i in range(2)}
    kept, cuts = places(shapes, experts())
    assert kept["model.layers.1.moe.experts"] == [0, 1] and kept["model.layers"] == [1]
    assert {name: (c.dim, c.kept) for name, (c,) in cuts.items()} == {
        f"model.layers.{i}.moe.gate.weight": (0, (0, 1)) for i in range(2)
    }


def test_experts_in_one_tensor():
    """gpt-oss: fused, and packed under names of their own."""
    shapes = {f"model.layers.{i}.mlp.experts.{n}": (4, 8, 8) for i in range(2) for n in ("up_blocks", "up_scales")}
    _, cuts = places(shapes, experts())
    assert {c.kept for found in cuts.values() for c in found} == {(0, 1)} and len(cuts) == 4


def test_experts_that_are_nowhere():
    with pytest.raises(Refused, match="experts are not found"):
        places({f"model.layers.{i}.a": (8, 8) for i in range(2)}, experts())


def test_a_packed_tensor_is_not_cut_at_a_guess():
    with pytest.raises(Refused, match="32 was expected"):
        places({"model.layers.0.a": (8,), "model.layers.1.a": (8,), "embed.weight": (4, 8)},
               [{"cuts": {"embed.weight": [0, 32, 8]}, "experts": [], "from": "32", "to": "8"}])  # fmt: skip


@pytest.mark.slow
def test_experts_and_tokens_of_a_checkpoint(tmp_path, distdbg):
    """What is kept is bit for bit the source's: the first experts, their rows of the router, the first tokens."""
    import torch
    import transformers

    source = models.save(tmp_path / "large", "mixtral", **{**SIZES, "num_local_experts": 8})
    done = distdbg("shrink-model", source, tmp_path / "small", "--experts", "3", "--vocab", "16")
    assert done.code == 0, done
    assert "NOT FAITHFUL" in done.err and "3 of 8" in done.err
    load = transformers.AutoModelForCausalLM.from_pretrained
    small, full = load(tmp_path / "small"), load(source)
    assert (small.config.num_local_experts, small.config.vocab_size, small.config.num_hidden_layers) == (3, 16, 2)
    there = full.state_dict()
    for name, value in small.state_dict().items():
        assert torch.equal(value, there[name][tuple(slice(n) for n in value.shape)]), name
    made = json.loads((tmp_path / "small" / "shrink.json").read_text())
    assert all(made["verified"][check].startswith("pass") for check in ("weights", "names_and_shapes", "ops"))
    assert [(n["axis"], n["from"], n["to"]) for n in made["narrowed"]] == [("experts", "8", "3"), ("vocab", "64", "16")]
    assert small.generate(torch.tensor([[1, 2]]), max_new_tokens=2).shape[0] == 1
