"""Models of a size that has a name: as little as possible is changed, and what is left has heads and experts."""

from __future__ import annotations

import pytest

from distdbg.errors import Refused, UsageError
from distdbg.shrink.probe.sizing import least_of, most_parameters
from tests.shrink import models

SIZES = {**models.TINY, "hidden_size": 512, "intermediate_size": 768, "num_attention_heads": 16, "num_hidden_layers": 4}


def sized(model_type, size, *, uncut=False, **fields):
    transformers = pytest.importorskip("transformers")
    from distdbg.shrink.probe.building import Builder, model_class
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink
    from distdbg.shrink.probe.sizing import parameters, sized
    from distdbg.shrink.probe.task import quiet

    quiet()
    config = transformers.CONFIG_MAPPING[model_type](**fields)
    builder = Builder(config, model_class(config, None, False))
    found = sized(builder, size, WantedLayers(), {}, uncut=uncut)
    return builder.full, [one.axis for one in found], parameters(shrink(builder, WantedLayers()).small)


def test_a_size_is_a_word_or_a_number() -> None:
    assert most_parameters("tiny") is None
    assert (most_parameters("100M"), most_parameters("1.5b")) == (100_000_000, 1_500_000_000)
    for wrong in ("100", "M", "small", "-1M"):
        with pytest.raises(UsageError):
            most_parameters(wrong)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("num_attention_heads", 32, 4),
        ("num_key_value_heads", 8, 2),
        ("num_key_value_heads", 1, 1),
        ("head_dim", 128, 8),
    ],
)
def test_heads_stay_heads(name: str, value: int, least: int) -> None:
    assert least_of((name,), value) == least


@pytest.mark.slow
def test_tiny_has_a_few_heads_and_experts() -> None:
    fields = {"moe_intermediate_size": 256, "num_experts": 32, "num_experts_per_tok": 4, "head_dim": 32}
    config, axes, count = sized("qwen3_moe", "tiny", **SIZES, **fields)
    assert axes == ["experts", "width"] and count < 200_000
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]) == (4, 2, 64)
    assert config["num_local_experts"] == 4


@pytest.mark.slow
def test_nothing_but_layers_goes_where_that_is_enough() -> None:
    config, axes, count = sized("llama", "10M", **SIZES)
    assert axes == [] and count <= 10_000_000 and config["hidden_size"] == 512


@pytest.mark.slow
def test_the_widest_that_fits() -> None:
    config, axes, count = sized("llama", "1M", **SIZES)
    assert axes == ["width"] and 250_000 < count <= 1_000_000
    assert config["hidden_size"] % config["num_attention_heads"] == 0


@pytest.mark.slow
def test_a_vocabulary_that_must_stay_and_is_too_large_is_said() -> None:
    with pytest.raises(Refused, match=r"has .* parameters"):
        sized("llama", "100K", uncut=True, **{**SIZES, "vocab_size": 100_000})


@pytest.mark.slow
def test_a_vocabulary_of_more_than_half_the_size_is_cut_to_half_of_it() -> None:
    config, axes, count = sized("llama", "8M", **{**SIZES, "vocab_size": 100_000})
    assert axes == ["vocab"] and config["hidden_size"] == 512
    assert config["vocab_size"] * 2 * 512 <= 4_000_000 and 5_000_000 < count <= 8_000_000


@pytest.mark.slow
def test_tiny_of_a_model_without_a_vocabulary() -> None:
    fields = {"hidden_size": 512, "intermediate_size": 768, "num_attention_heads": 16, "num_hidden_layers": 4}
    config, axes, _ = sized("vit", "tiny", **fields, image_size=32)
    assert axes == ["width"] and (config["hidden_size"], config["image_size"]) == (64, 32)
