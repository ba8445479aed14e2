"""Inputs that a model's forward takes, on the meta device, made from its config and its signature."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

#: tokens, or frames, of one sequence
LENGTH = 16
_BATCH = 1
#: main inputs that are sounds: as spectra, and as samples
SOUNDS = ("input_features", "input_values")


def inputs_for(model: Any, tokens: int = LENGTH) -> dict[str, Any]:
    """Keyword arguments for `model.forward`. Raises LookupError where its main input is of an unknown kind.

    A sound has one of several shapes, and no config says which: it is the first with which the model runs.
    """
    import torch

    if {"hidden_states", "grid_thw"} <= _takes(model):
        return _patches(model.config)
    name = getattr(model, "main_input_name", "input_ids")
    with torch.device("meta"):
        if name == "input_ids":
            return _with_the_rest(model, name, torch.zeros(_BATCH, tokens, dtype=torch.long))
        if name == "pixel_values":
            return _with_the_rest(model, name, _pixels(model.config))
        if name in SOUNDS:
            return _first_that_runs(model, [_with_the_rest(model, name, sound) for sound in _sounds(model, name)])
    raise LookupError(f"no input is known for {name!r}")


def _first_that_runs(model: Any, candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """Where none does, what the first one raises is what there is to say."""
    import torch

    from distdbg.shrink.verify.measuring import on_meta_only

    for inputs in candidates:
        try:
            with torch.no_grad(), on_meta_only():
                model(**inputs)
        except Exception:
            continue
        return inputs
    return candidates[0]


def _with_the_rest(model: Any, name: str, main: Any) -> dict[str, Any]:
    """The main input, and what else the model cannot do without."""
    import torch

    with torch.device("meta"):
        found = {name: main}
        if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in _takes(model):
            length = main.shape[1] if name == "input_ids" else LENGTH
            found["decoder_input_ids"] = torch.zeros(_BATCH, length, dtype=torch.long)
        if name == "input_ids" and "pixel_values" in _takes(model) and _needs(model, "pixel_values"):
            found["pixel_values"] = _pixels(model.config)
    if name in SOUNDS:
        found |= masks_for(main, _takes(model))
    if "use_cache" in _takes(model):
        found["use_cache"] = False
    return found


def _takes(model: Any) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _needs(model: Any, name: str) -> bool:
    """Two towers that are compared (CLIP) need both inputs, and say so by a config for each."""
    config = model.config
    return hasattr(config, "projection_dim") and hasattr(config, "vision_config") and name in _takes(model)


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


def masks_for(sound: Any, takes: set[str]) -> dict[str, Any]:
    """Masks of a sound that is heard whole. They stay on the CPU: models read lengths from them."""
    import torch

    frames = max(sound.shape[1:])
    names = ("input_features_mask", "feature_attention_mask")
    return {name: torch.ones(_BATCH, frames, dtype=torch.long, device="cpu") for name in names if name in takes}


def _sounds(model: Any, name: str) -> Iterator[Any]:
    """As spectra: bins before time (Whisper's), after it, with a channel before both. As samples: a row of them (or of
    spectra under that name, where the config has bins), with a channel before it."""
    import torch

    bins = _known(model.config, ("num_mel_bins", "input_feat_per_channel", "num_mel_channels", "feature_size"))
    frames = _known(model.config, ("max_length",)) if name == "input_values" else None
    length = frames or 2 * (_known(model.config, ("max_source_positions",)) or 500)
    if name == "input_features" or (bins and frames):
        yield torch.zeros(_BATCH, bins or 80, length)
        yield torch.zeros(_BATCH, length, bins or 80)
        yield torch.zeros(_BATCH, 1, length, bins or 80)
    if name == "input_values":
        yield torch.zeros(_BATCH, 16000)
        yield torch.zeros(_BATCH, 1, 16000)


def _known(config: Any, names: tuple[str, ...]) -> int | None:
    """The first of these numbers in the config, or in one of the configs in it."""
    inner = [getattr(config, name, None) for name in getattr(config, "sub_configs", None) or {}]
    values = (getattr(one, name, None) for one in (config, *inner) for name in names)
    return next((v for v in values if type(v) is int), None)
