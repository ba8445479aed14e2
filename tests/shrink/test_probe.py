"""Default configs of many families: each is shrunk with all its kinds, and none by its name.

The whole of transformers is a benchmark's matter (benchmarks/shrink_sweep.py); these are one or two of each make.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

TYPES = (
    # dense decoders
    "llama gpt2 opt bloom falcon mpt gptj phi3 gemma2 olmo2 minicpm3 stablelm codegen "
    # experts, dense layers among them, latent attention
    "mixtral qwen3_moe deepseek_v3 gpt_oss llama4_text glm4_moe longcat_flash "
    # sliding and full, linear and full, state spaces, recurrent
    "gemma3_text qwen3_next jamba mamba mamba2 bamba falcon_h1 recurrent_gemma rwkv lfm2 minimax "
    # encoders, encoder and decoder
    "bert roberta deberta-v2 modernbert xlm t5 bart pegasus nllb-moe longt5 "
    # pictures
    "vit dinov2 beit swin convnext segformer pvt clip siglip focalnet "
    # pictures and text
    "llava qwen2_vl qwen3_vl gemma3 gemma4 idefics3 "
    # sound
    "whisper wav2vec2 hubert speech_to_text clap"
).split()


def builder(model_type: str):
    from transformers import CONFIG_MAPPING

    from distdbg.shrink.probe.building import Builder, model_class
    from distdbg.shrink.probe.task import quiet

    quiet()
    config = CONFIG_MAPPING[model_type]()
    return Builder(config, model_class(config, None, False))


@pytest.mark.breadth(by=lambda model_type: TYPES.index(model_type) // 5)
@pytest.mark.parametrize("model_type", TYPES)
def test_every_kind_is_kept(model_type: str) -> None:
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    found = shrink(builder(model_type), WantedLayers())
    assert found.stacks
    for stack in found.stacks:
        assert {stack.kinds[i] for i in stack.kept} == set(stack.kinds), stack.name
        assert len(stack.kept) <= max(2, stack.group.layers // 2 + 1), stack.name
        assert len(stack.kept) >= min(2, stack.group.layers), stack.name


@pytest.mark.parametrize(
    ("model_type", "kept"),
    [
        ("deepseek_v3", {"model.layers": [0, 3]}),
        ("gemma3_text", {"model.layers": [0, 5]}),
        ("qwen3_vl", {"model.language_model.layers": [0, 1, 2], "model.visual.blocks": [0, 8, 16, 24]}),
        ("whisper", {"model.encoder.layers": [0, 1], "model.decoder.layers": [0, 1]}),
        ("sam2_hiera_det_model", {"blocks": [0, 1, 2, 3, 4, 5, 10, 11]}),
    ],
)
def test_what_is_kept_of_some(model_type: str, kept: dict[str, list[int]]) -> None:
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    assert {s.name: s.kept for s in shrink(builder(model_type), WantedLayers()).stacks} == kept


def test_a_stages_depth_that_equals_the_number_of_stages_is_not_taken_for_it() -> None:
    """A ResNet of four stages has one with four layers: what it outputs must stay as it is."""
    from distdbg.shrink.checkpoint.config_leaves import changed
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    made = builder("resnet")
    small = changed(made.full, shrink(made, WantedLayers()).edits)
    assert small["depths"] == [2, 2, 2, 2]
    for field in ("stage_names", "out_indices", "out_features", "hidden_sizes"):
        assert small[field] == made.full[field]


def test_every_stage_of_a_stack_keeps_a_layer() -> None:
    """SAM 2's trunk is one stack, and a list counts its blocks stage by stage."""
    from distdbg.errors import Refused
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    model = builder("sam2_hiera_det_model")
    (four,) = shrink(model, WantedLayers(layers=4)).stacks
    assert four.kept == [0, 1, 3, 10] and four.edits["blocks_per_stage",] == [1, 1, 1, 1]
    with pytest.raises(Refused, match="by blocks_per_stage: stage 2 would have no layer"):
        shrink(model, WantedLayers(layers=2))


def test_picked_layers_that_are_all_of_one_rule() -> None:
    """Every second layer has experts, and none but such are kept; then also one that the rule makes dense."""
    from transformers import CONFIG_MAPPING

    from distdbg.errors import Refused
    from distdbg.shrink.probe.building import Builder, model_class
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink
    from distdbg.shrink.probe.task import quiet

    quiet()
    fields = {"hidden_size": 32, "moe_intermediate_size": 16, "num_experts": 4, "num_attention_heads": 4}
    config = CONFIG_MAPPING["qwen3_moe"](num_hidden_layers=8, decoder_sparse_step=2, **fields)
    made = Builder(config, model_class(config, None, False))
    found = shrink(made, WantedLayers(keep="3,5,7"))
    assert found.edits["decoder_sparse_step",] == 1
    with pytest.raises(Refused, match="follows from decoder_sparse_step"):
        shrink(made, WantedLayers(keep="0,1,2,3,5,7"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "kept"),
    [
        ("depth_pro", [[0, 5, 11], [0, 5, 11]]),  # taps named in the config above the towers', the last first
        ("qwen2_5_vl", [[0, 1], [0, 7]]),  # a list that only forward reads says which layers attend to all
        ("seamless_m4t", [[0, 1], [0, 1]]),  # the sizes of a vocoder's kernels are no layers
    ],
)
def test_lists_that_name_layers_and_lists_that_do_not(model_type: str, kept: list[list[int]]) -> None:
    import transformers

    from distdbg.shrink.probe.building import Builder, model_class
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink
    from distdbg.shrink.probe.task import quiet

    quiet()
    config = transformers.CONFIG_MAPPING[model_type]()
    found = shrink(Builder(config, model_class(config, None, False)), WantedLayers())
    assert [stack.kept for stack in found.stacks] == kept


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["rf_detr", "lw_detr"])  # the first runs on meta, the second does not
def test_groups_of_queries_are_no_layers(model_type: str) -> None:
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    edits = shrink(builder(model_type), WantedLayers()).edits
    assert ("decoder_layers",) in edits and ("group_detr",) not in edits


@pytest.mark.slow
def test_a_class_of_the_type_itself_comes_before_another_types() -> None:
    """ShieldGemma 2 is served by Gemma 3's class for texts, which does not find the names of its tensors."""
    import transformers

    config = transformers.CONFIG_MAPPING["shieldgemma2"]()
    found = builder("shieldgemma2").model_class._model_mapping[type(config)]
    assert found.config_class is type(config)


@pytest.mark.slow
def test_numbers_that_must_equal_that_of_the_layers_follow_it() -> None:
    """All layers of a drafting Gemma 4 share the keys of another model, and its config refuses that some do."""
    import torch
    import transformers

    from distdbg.shrink.probe.building import Builder
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    kinds = ["sliding_attention", "full_attention"]

    class Config(transformers.PretrainedConfig):
        model_type = "all_layers_share"

        def __init__(self, num_hidden_layers=4, num_shared_layers=4, layer_types=(*kinds, *kinds), **rest):
            if not num_hidden_layers == num_shared_layers == len(layer_types):
                raise ValueError("all layers share")
            self.num_hidden_layers, self.num_shared_layers = num_hidden_layers, num_shared_layers
            self.layer_types = list(layer_types)
            super().__init__(**rest)

    class Model(transformers.PreTrainedModel):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            parts = [[torch.nn.Linear(2, 2) for _ in range(3)] for _ in range(config.num_hidden_layers)]
            self.layers = torch.nn.ModuleList(torch.nn.Sequential(*layer) for layer in parts)
            self.post_init()

    found = shrink(Builder(Config(), Model), WantedLayers())
    assert found.stacks[0].kept == [0, 1]
    assert {path[-1]: value for path, value in found.edits.items()} == {
        "num_hidden_layers": 2, "num_shared_layers": 2, "layer_types": kinds}  # fmt: skip


def own_type(config_class, make_layers):
    """The class of a model that has `layers`, for a config of the test's own."""
    import torch
    import transformers

    class Layer(torch.nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.kind = kind
            self.parts = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))

    class Model(transformers.PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.layers = torch.nn.ModuleList(Layer(kind) for kind in make_layers(config))
            self.post_init()

    Model.config_class = config_class
    return Model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "kept", "left"),
    [("kinds", [0, 1], ["global", "local"]), ("1,3", [1, 3], ["local", "local"]), ("last", [7], ["local"])],
)
def test_runs_of_kinds_must_make_as_many_as_there_are_layers(keep: str, kept: list[int], left: list[str]) -> None:
    """GPT-Neo's config of transformers 4: [[["global", "local"], 4]] and a number that it insists on."""
    import transformers

    from distdbg.shrink.probe.building import Builder
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    class Config(transformers.PretrainedConfig):
        model_type = "runs_of_kinds"

        def __init__(self, num_layers=8, runs=((("global", "local"), 4),), **rest):
            if sum(len(kinds) * times for kinds, times in runs) != num_layers:
                raise ValueError("runs make another number of layers")
            self.num_layers, self.runs = num_layers, [[list(kinds), times] for kinds, times in runs]
            super().__init__(**rest)

    model = own_type(Config, lambda config: [kind for kinds, times in config.runs for kind in kinds * times])
    wanted = WantedLayers(keep=keep, layers=1 if keep == "last" else None)
    found = shrink(Builder(Config(), model), wanted)
    assert found.stacks[0].kept == kept
    assert found.edits == {("num_layers",): len(kept), ("runs",): [[left, 1]]}


@pytest.mark.slow
def test_a_config_that_writes_torchs_types_as_they_are() -> None:
    """DPT's of transformers 4 has its own `to_dict`, and can be made of the name of a type alone."""
    import torch
    import transformers

    from distdbg.shrink.probe.building import Builder

    class Config(transformers.PretrainedConfig):
        model_type = "types_as_they_are"

        def to_dict(self):
            return super().to_dict() | {"dtype": torch.bfloat16}

    builder = Builder(Config(), None)
    assert builder.full["dtype"] == "bfloat16"
    assert builder.config(builder.full).dtype in (torch.bfloat16, "bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "follows_from"), [("encodec", "num_residual_layers"), ("pp_lcnet", "block_configs")]
)
def test_a_refusal_names_what_the_layers_follow_from(model_type: str, follows_from: str) -> None:
    from distdbg.errors import Refused
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    with pytest.raises(Refused, match=follows_from):
        shrink(builder(model_type), WantedLayers())
