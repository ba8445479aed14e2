"""Configs as they are released (what is public of them): lists a layer absent, at full size, on the meta device."""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")

from distdbg.shrink.probe.building import Builder, model_class
from distdbg.shrink.probe.shrinking import WantedLayers, shrink
from distdbg.shrink.probe.task import quiet

pytestmark = pytest.mark.slow

LLAMA3_70B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "bos_token_id": 128000,
    "eos_token_id": 128001, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "head_dim": 128,
    "hidden_size": 2048, "intermediate_size": 6144, "max_window_layers": 48, "mlp_only_layers": [],
    "moe_intermediate_size": 768, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "first_k_dense_replace": 3,
    "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "routed_scaling_factor": 2.5, "topk_group": 4, "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip
MIXTRAL_8X7B = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "num_local_experts": 8, "sliding_window": None, "vocab_size": 32000,
}  # fmt: skip
GEMMA3_4B = {
    "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "image_token_index": 262144,
    "mm_tokens_per_image": 256,
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                    "num_hidden_layers": 34, "sliding_window": 1024, "vocab_size": 262208},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896,
                      "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14},
}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "architectures": ["JambaForCausalLM"], "attn_layer_offset": 4, "attn_layer_period": 8,
    "expert_layer_offset": 1, "expert_layer_period": 2, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_experts": 16, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "use_mamba_kernels": False, "vocab_size": 65536,
}  # fmt: skip
T5_BASE = {
    "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_ff": 3072, "d_kv": 64, "d_model": 768,
    "num_heads": 12, "num_layers": 12, "vocab_size": 32128,
}  # fmt: skip
WHISPER_LARGE = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 1280,
    "decoder_attention_heads": 20, "decoder_ffn_dim": 5120, "decoder_layers": 32, "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120, "encoder_layers": 32, "num_hidden_layers": 32, "num_mel_bins": 128, "vocab_size": 51866,
}  # fmt: skip
VIT_BASE = {"model_type": "vit", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
CLIP_LARGE = {
    "model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 768,
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12},
    "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
                      "num_hidden_layers": 24, "patch_size": 14},
}  # fmt: skip
QWEN3_VL_8B = {
    "model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655,
    "text_config": {"model_type": "qwen3_vl_text", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
                    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "vocab_size": 151936,
                    "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}},
    "vision_config": {"model_type": "qwen3_vl", "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
                      "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 4096},
}  # fmt: skip

RELEASED = {
    "llama-3-70b": (LLAMA3_70B, [(80, [0, 1])]),
    "qwen3-30b-a3b": (QWEN3_30B_A3B, [(48, [0, 1])]),
    "deepseek-v3": (DEEPSEEK_V3, [(61, [0, 3])]),
    "mixtral-8x7b": (MIXTRAL_8X7B, [(32, [0, 1])]),
    "gemma-3-4b": (GEMMA3_4B, [(34, [0, 5]), (27, [0, 1])]),
    "jamba": (JAMBA, [(32, None)]),
    "t5-base": (T5_BASE, [(12, [0, 1]), (12, [0, 1])]),
    "whisper-large-v3": (WHISPER_LARGE, [(32, [0, 1]), (32, [0, 1])]),
    "vit-base": (VIT_BASE, [(12, [0, 1])]),
    "clip-vit-large": (CLIP_LARGE, [(12, [0, 1]), (24, [0, 1])]),
    "qwen3-vl-8b": (QWEN3_VL_8B, [(36, [0, 1, 2]), (27, [0, 8, 16, 24])]),
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_config(name: str) -> None:
    quiet()
    released, expected = RELEASED[name]
    config = transformers.CONFIG_MAPPING[released["model_type"]].from_dict(dict(released))
    found = shrink(Builder(config, model_class(config, None, False)), WantedLayers())
    stacks = [(stack.group.layers, stack.kept) for stack in found.stacks]
    assert sorted(n for n, _ in stacks) == sorted(n for n, _ in expected)
    for stack in found.stacks:
        assert {stack.kinds[i] for i in stack.kept} == set(stack.kinds)
    for wanted in expected:
        assert wanted[1] is None or wanted in stacks, stacks
