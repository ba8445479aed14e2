"""Tiny checkpoints to shrink, written by transformers itself."""

from __future__ import annotations

from pathlib import Path

TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def save(folder: Path, model_type: str, auto: str = "AutoModelForCausalLM", **settings: object) -> Path:
    """A model of this type with random weights, in `folder`; save_pretrained's own options begin with `save_`."""
    import torch
    import transformers

    torch.manual_seed(0)
    options = {k.removeprefix("save_"): settings.pop(k) for k in list(settings) if k.startswith("save_")}
    if before_5():
        settings = _with_rope_as_before_5(settings)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    model = getattr(transformers, auto).from_config(config)
    model.save_pretrained(folder, **options)
    return folder


def before_5() -> bool:
    import transformers

    return int(transformers.__version__.partition(".")[0]) < 5


def _with_rope_as_before_5(settings: dict[str, object]) -> dict[str, object]:
    found = {
        name: _with_rope_as_before_5(value) if isinstance(value, dict) else value for name, value in settings.items()
    }
    rope = found.pop("rope_parameters", None)
    if isinstance(rope, dict):
        found |= {"rope_theta": rope.pop("rope_theta", 1e4), "rope_scaling": rope}
    return found


def llama(folder: Path, layers: int = 6, **settings: object) -> Path:
    return save(folder, "llama", **{**TINY, "num_hidden_layers": layers, **settings})
