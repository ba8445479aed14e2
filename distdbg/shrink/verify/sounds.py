"""Sounds as models take them: as spectra, or as samples. They and their masks are on the CPU: models read lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distdbg.shrink.verify.names import SOUNDS

_MASKS = ("input_features_mask", "input_values_mask", "feature_attention_mask", "padding_mask", "audio_attention_mask")
_BINS = ("num_mel_bins", "input_feat_per_channel", "num_mel_channels", "feature_size", "n_mels", "input_dim",
         "input_size", "feature_projection_input_dim")  # fmt: skip
_SAMPLES = 16000


def sounds(takes: set[str], config: Any) -> Iterator[dict[str, Any]]:
    """Each way in which one sound can be given to a function that takes these arguments, the likeliest first."""
    for name in SOUNDS:
        if name in takes:
            for sound, frames in _shapes(config, name):
                yield {name: sound} | masks(takes, frames)


def masks(takes: set[str], frames: int) -> dict[str, Any]:
    """Of a sound that is heard whole."""
    import torch

    found = {n: torch.ones(1, frames, dtype=torch.long, device="cpu") for n in _MASKS if n in takes}
    # embed sizes are how many rows are taken of what is made of a sound: no more than there are
    lengths = [n for n in ("chunk_sample_lengths", "audio_embed_sizes") if n in takes]
    return found | {n: torch.tensor([frames], device="cpu") for n in lengths}


def _shapes(config: Any, name: str) -> Iterator[tuple[Any, int]]:
    """(sound, how long its mask is). As spectra: bins before time (Whisper's), after it, with a channel before both.
    As samples: a row of them (or of spectra under that name, where the config has bins), with a channel before it."""
    import torch

    known = list(_known(config, _BINS)) or [80]
    frames = next(_known(config, ("max_length",)), None) if name == "input_values" else None
    length = frames or 2 * next(_known(config, ("max_source_positions",)), 500)
    with torch.device("cpu"):
        if name == "input_features" or (next(_known(config, _BINS), None) and frames):
            for bins in known:
                yield torch.ones(1, bins, length), length
                yield torch.ones(1, length, bins), length
                yield torch.ones(1, 1, length, bins), length
        if name == "input_values":
            whole = next(_known(config, ("hop_length", "frame_size", "downsample_factor")), 1)
            for samples in dict.fromkeys((_SAMPLES, 30 * 640, 10 * whole)):
                yield torch.ones(1, samples), samples
                yield torch.ones(1, 1, samples), samples


def _known(config: Any, names: tuple[str, ...]) -> Iterator[int]:
    """These numbers, in the config or in one of the configs in it, each once."""
    inner = [getattr(config, name, None) for name in getattr(config, "sub_configs", None) or {}]
    values = [getattr(one, name, None) for one in (config, *inner) for name in names]
    yield from dict.fromkeys(v for v in values if type(v) is int)
