"""Images, videos and sounds as real models take them: tiles, rows of patches, spectra, and as many places in the text
as that makes. The shapes are those of released configs, at widths of a toy."""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")

from distdbg.shrink.verify.inputs import dry
from distdbg.shrink.verify.modalities import inputs_of
from distdbg.shrink.verify.modalities import modalities as modalities_of
from distdbg.shrink.verify.samples import MAIN
from tests.shrink.verify.builders import builder_of

pytestmark = pytest.mark.slow

TEXT = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 512, "num_hidden_layers": 2, "pad_token_id": 0}  # fmt: skip
LLAMA = {"model_type": "llama", **TEXT}
QWEN = {"model_type": "qwen2", **TEXT}
ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_hidden_layers": 3}
CLIP = {"model_type": "clip_vision_model", **SMALL, "image_size": 336, "patch_size": 14}
SIGLIP = {"model_type": "siglip_vision_model", **SMALL, "image_size": 384, "patch_size": 14, "vision_use_head": False}
PATCHES = {"depth": 4, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64, "intermediate_size": 48,
           "patch_size": 14, "fullatt_block_indexes": [1, 3]}  # fmt: skip
SOUND = {"d_model": 32, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "encoder_layers": 2, "num_mel_bins": 128}
IDS = {"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}
PLACE = {"image_token_index": 60}
LLAMA4 = {**SMALL, "intermediate_size": 128, "image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5,
          "vision_output_dim": 128, "projector_input_dim": 128, "projector_output_dim": 128}  # fmt: skip
MLLAMA = {"hidden_size": 32, "intermediate_size": 48, "attention_heads": 2, "num_hidden_layers": 3,
          "num_global_layers": 2, "image_size": 448, "patch_size": 14, "max_num_tiles": 4,
          "intermediate_layers_indices": [0, 1], "vision_output_dim": 96}  # fmt: skip
CROSSED = {**TEXT, "num_hidden_layers": 4, "cross_attention_layers": [1, 3],
           "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}  # fmt: skip
HIERA = {"model_type": "sam2_hiera_det_model", "blocks_per_stage": [1, 1, 2, 1], "global_attention_blocks": [3]}
GLM = {**PATCHES, "depth": 2, "image_size": 336}
QFORMER = {"model_type": "blip_2_qformer", **SMALL, "encoder_hidden_size": 32}
HEARS = {"hidden_size": 32, "intermediate_size": 48, "num_blocks": 3, "num_attention_heads": 2, "audio_token_id": 61,
         "ext_pw_out_channel": 32, "depthwise_separable_out_channel": 32, "nemo_conv_channels": 8}  # fmt: skip
HEARD = {"hidden_dim": 32, "num_layers": 2, "num_heads": 2, "dim_head": 16, "input_dim": 160, "output_dim": 42}

IMAGES = {
    "llava": {"text_config": LLAMA, "vision_config": CLIP, **PLACE},
    "llava_next": {"text_config": LLAMA, "vision_config": CLIP, **PLACE},  # in tiles, with its size
    "llava_onevision": {"text_config": QWEN, "vision_config": SIGLIP, **PLACE, "video_token_index": 61},
    "idefics3": {"text_config": LLAMA, "vision_config": {**SMALL, "image_size": 364, "patch_size": 14},
                 "image_token_id": 60},
    "mllama": {"text_config": CROSSED, "vision_config": MLLAMA, **PLACE},  # crossed, and no place in the text
    "mistral3": {"text_config": {**TEXT, "model_type": "mistral"}, **PLACE,
                 "vision_config": {"model_type": "pixtral", **SMALL, "image_size": 1540, "patch_size": 14}},
    "qwen2_5_vl": {"text_config": {**TEXT, "rope_parameters": ROPE}, "vision_config": PATCHES, **IDS},
    "glm4v": {"text_config": {**TEXT, "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5,
                                                          "mrope_section": [2, 1, 1]}}, "vision_config": GLM,
              "image_token_id": 60, "video_token_id": 61, "image_start_token_id": 62, "image_end_token_id": 63,
              "video_start_token_id": 64, "video_end_token_id": 65},
    "gemma3": {"text_config": {**TEXT, "model_type": "gemma3_text", "head_dim": 16}, "mm_tokens_per_image": 256,
               "vision_config": {**SIGLIP, "image_size": 896}, "image_token_id": 60},
    "llama4": {"text_config": {**TEXT, "model_type": "llama4_text", "head_dim": 16, "intermediate_size_mlp": 96,
                               "num_local_experts": 2}, "vision_config": LLAMA4, "image_token_id": 60},
    "internvl": {"text_config": QWEN, "vision_config": {**SMALL, "image_size": [448, 448], "patch_size": [14, 14]},
                 "image_token_id": 60},
    "lfm2_vl": {"text_config": {**TEXT, "model_type": "lfm2"}, "image_token_id": 60,  # patches filled up to a length
                "vision_config": {"model_type": "siglip2_vision_model", **SMALL, "patch_size": 16}},
    "vilt": {"num_hidden_layers": 2},  # beside the text
    "videomae": {"num_hidden_layers": 2},  # of so many frames
    "sam2": {"vision_config": {"backbone_config": HIERA}},  # of the one size that a config inside the config names
}  # fmt: skip
SOUNDS = {
    "qwen2_audio": {"text_config": QWEN, "audio_config": SOUND, "audio_token_index": 60},
    "qwen3_asr": {"text_config": {**TEXT, "model_type": "qwen3", "head_dim": 16}, "audio_token_id": 60,
                  "audio_config": {**SOUND, "output_dim": 64, "downsample_hidden_size": 16}},
    "voxtral": {"text_config": LLAMA, "audio_token_id": 60, "audio_config": {**SMALL, "intermediate_size": 128}},
    "granite_speech": {"text_config": {**TEXT, "model_type": "granite"}, "encoder_config": HEARD,
                       "projector_config": QFORMER, "audio_token_index": 60, "has_lora_adapter": False},
    "encodec": {"num_lstm_layers": 1},  # samples; buffers say how wide its kernels are
}  # fmt: skip
VIDEOS = {
    "video_llava": {"text_config": LLAMA, "vision_config": CLIP, "image_token_index": 60, "video_token_index": 61},
    "vjepa2": {"num_hidden_layers": 2, "pred_num_hidden_layers": 2, "frames_per_clip": 4},  # by itself
}
BOTH = {
    "phi4_multimodal": {**TEXT, "vision_config": {**SMALL, "image_size": 56, "crop_size": 56, "image_token_id": 60},
                        "audio_config": HEARS},  # under names of its own, and the towers' configs have the tokens
    "qwen2_5_omni_thinker": {"text_config": {**TEXT, "rope_parameters": ROPE}, "vision_config": PATCHES,
                             "audio_config": {**SOUND, "output_dim": 64, "n_window": 100}, **IDS, **PLACE,
                             "video_token_index": 61, "audio_token_id": 70, "audio_token_index": 70,
                             "audio_start_token_id": 71, "audio_end_token_id": 72},
}  # fmt: skip


#: transformers 5.24 raises AttributeError in modeling_llama4.py:1318, with and without distdbg
LLAMA4_RAISES = pytest.mark.xfail(
    tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 24),
    reason="llama4 of transformers 5.24 raises on images",
)
#: those that take a video as well
MOVING = {"llava_onevision", "qwen2_5_vl", "glm4v", "video_llava", "qwen2_5_omni_thinker"}


@pytest.mark.parametrize(
    ("model_type", "config", "modalities"),
    [
        *(
            pytest.param(name, config, "image", marks=LLAMA4_RAISES if name == "llama4" else ())
            for name, config in IMAGES.items()
        ),
        *((name, config, "audio") for name, config in SOUNDS.items()),
        *((name, config, "image audio") for name, config in BOTH.items()),
        *((name, config, "" if name == "vjepa2" else "image") for name, config in VIDEOS.items()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_model_takes_is_made(model_type, config, modalities):
    model = builder_of(model_type, config).with_random_weights().eval()
    moving = ["video"] if model_type in MOVING or not modalities else []
    assert {*modalities_of(model)} == {*modalities.split(), *moving}
    for modality in modalities_of(model):
        inputs = inputs_of(model, modality)
        assert any(name.endswith(MAIN[modality]) for name in inputs), inputs.keys()
        dry(model, inputs)


def test_an_image_that_will_not_do_is_said():
    vision = {"model_type": "idefics3_vision", **SMALL, "image_size": 224, "patch_size": 14}
    text = {**TEXT, "model_type": "aria_text", "moe_num_experts": 2, "moe_topk": 1}
    full = builder_of("aria", {"text_config": text, "vision_config": vision, "image_token_index": 60})
    with pytest.raises(KeyError, match="Number of pat"):  # it takes 1,225 patches or 4,900
        inputs_of(full.with_random_weights().eval(), "image")
