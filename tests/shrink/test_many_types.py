"""Sixty types of all families at their default values: one layer of each kind, each as it was. The sweep has all."""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")

from distdbg.shrink.probe.building import Builder, model_class
from distdbg.shrink.probe.shrinking import WantedLayers, shrink
from distdbg.shrink.probe.task import quiet

pytestmark = pytest.mark.slow

TYPES = """
llama mistral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3_text gpt2 gpt_neo gptj gpt_neox codegen opt falcon phi3
olmo2 olmoe deepseek_v2 gpt_oss jamba mamba mamba2 bamba recurrent_gemma rwkv minicpm3 cohere2 stablelm granitemoe
t5 mt5 mbart pegasus marian led bert roberta deberta-v2 electra mpnet xlnet xlm modernbert big_bird
whisper wav2vec2 hubert vit swin swinv2 convnext beit dinov2 siglip blip mask2former sam yolos
qwen2_vl llava internvl mllama
""".split()


@pytest.mark.breadth(by=lambda model_type: TYPES.index(model_type) // 5)
@pytest.mark.parametrize("model_type", TYPES)
def test_a_type_at_its_defaults(model_type: str) -> None:
    """What `shrink` gives is compared layer by layer within it; here, that something was cut and no kind lost."""
    quiet()
    config = transformers.CONFIG_MAPPING[model_type]()
    found = shrink(Builder(config, model_class(config, None, False)), WantedLayers())
    assert any(len(stack.kept) < stack.group.layers for stack in found.stacks), model_type
    for stack in found.stacks:
        assert {stack.kinds[i] for i in stack.kept} == set(stack.kinds), stack.name
