"""Inputs that a model's forward takes, on the meta device, made from its config and its signature."""

from __future__ import annotations

import inspect
from typing import Any

#: tokens, or frames, of one sequence
LENGTH = 16
_BATCH = 1


def inputs_for(model: Any, tokens: int = LENGTH) -> dict[str, Any]:
    """Keyword arguments for `model.forward`. Raises LookupError where its main input is of an unknown kind."""
    import torch

    name = getattr(model, "main_input_name", "input_ids")
    makers = {"input_ids": _ids, "pixel_values": _pixels, "input_features": _features, "input_values": _samples}
    if name not in makers and not {"hidden_states", "grid_thw"} <= _takes(model):
        raise LookupError(f"no input is known for {name!r}")
    if {"hidden_states", "grid_thw"} <= _takes(model):
        return _patches(model.config)
    with torch.device("meta"):
        found = {name: makers[name](model.config)}
        if name == "input_ids":
            found = {name: torch.zeros(_BATCH, tokens, dtype=torch.long)}
        if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in _takes(model):
            found["decoder_input_ids"] = _ids(model.config)
        if name == "input_ids" and "pixel_values" in _takes(model) and _needs(model, "pixel_values"):
            found["pixel_values"] = _pixels(model.config)
    if "use_cache" in _takes(model):
        found["use_cache"] = False
    return found


def _takes(model: Any) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _needs(model: Any, name: str) -> bool:
    """Two towers that are compared (CLIP) need both inputs, and say so by a config for each."""
    config = model.config
    return hasattr(config, "projection_dim") and hasattr(config, "vision_config") and name in _takes(model)


def _ids(config: Any) -> Any:  # noqa: ARG001
    import torch

    return torch.zeros(_BATCH, LENGTH, dtype=torch.long)


def _pixels(config: Any) -> Any:
    import torch

    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else (tuple(size) * 2)[:2]
    return torch.zeros(_BATCH, getattr(vision, "num_channels", None) or 3, height, width)


def _patches(config: Any) -> dict[str, Any]:
    """Images as one row of patches, and how many of them there are in time, height and width."""
    import torch

    side = 2 * (getattr(config, "spatial_merge_size", None) or 2)
    size = (getattr(config, "temporal_patch_size", None) or 1) * config.patch_size**2
    channels = getattr(config, "in_channels", None) or getattr(config, "in_chans", None) or 3
    patches = torch.zeros(side * side, channels * size, device="meta")
    return {"hidden_states": patches, "grid_thw": torch.tensor([[1, side, side]])}


def _features(config: Any) -> Any:
    import torch

    bins = getattr(config, "num_mel_bins", None) or 80
    return torch.zeros(_BATCH, bins, 2 * (getattr(config, "max_source_positions", None) or 100))


def _samples(config: Any) -> Any:  # noqa: ARG001
    import torch

    return torch.zeros(_BATCH, 16000)
