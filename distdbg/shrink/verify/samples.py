"""Make one image, video or sound as models take it.

Images come as a grid of pixels, as several tiles of it, or as a row of patches; videos as a tile a frame, or as patches
with the time they are of; sounds as spectra, or as samples. What a function takes beside the pixels (their sizes, the
grid of the patches, a mask) says which of them it is; where it does not, the first with which the model runs is it. All
of it is on the CPU: models read sizes, lengths and places, and leave out images that are nothing but zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Inputs = dict[str, Any]
#: names of the table that says how many patches there are in time, height and width
GRIDS = ("image_grid_thw", "grid_thw")
_PLACES = ("image_position_ids", "pixel_position_ids", "patch_positions")
#: of an image in tiles so many: the whole image and none, one, two or four parts of it
_TILES = (1, 2, 3, 5)
_SIZE = 224
#: of a video whose config does not say how many
_FRAMES = (2, 4, 8, 16)
#: pixels of a side: some models halve it more often than their config says
_LARGEST = 2048


def pictures(takes: set[str], config: Any) -> Iterator[Inputs]:
    """Each way in which one image can be given to a function that takes these arguments, the likeliest first."""
    vision = _vision(config)
    size, channels = _size(vision), _first(vision, "num_channels", "in_channels", "in_chans", "input_channels") or 3
    grid = next((name for name in GRIDS if name in takes), None)
    places = next((name for name in _PLACES if name in takes), None)
    if grid:
        yield from _in_a_row(takes, grid, vision, channels)
    if "spatial_shapes" in takes:
        yield _padded(vision, channels)
    if places:
        yield from _placed(places, vision, channels)
    if "target_sizes" in takes:
        yield _packed(vision, channels)
    if "pixel_values" in takes:
        for given in _grids_of_pixels(takes, config, channels, size):
            yield given | _beside(takes, config, given["pixel_values"])
            if "image_sizes" in takes:
                yield given


def videos(takes: set[str], config: Any) -> Iterator[Inputs]:
    """The same of one video, under the names that an image would have."""
    vision = _vision(config)
    frames = _first(vision, "num_frames", "frames_per_clip", "max_frames")
    if "pixel_values" in takes and not takes & {*GRIDS, *_PLACES}:
        channels = _first(vision, "num_channels", "in_channels", "in_chans") or 3
        for one in (_size(vision), *_sizes_inside(config)):
            for count in dict.fromkeys((frames or _FRAMES[0], *_FRAMES)):
                yield {"pixel_values": _white(1, count, channels, *one)}
    yield from pictures(takes, config)


def _in_a_row(takes: set[str], grid: str, vision: Any, channels: int) -> Iterator[Inputs]:
    """Patches one after the other, each flat, or as pixels."""
    import torch

    name = "pixel_values" if "pixel_values" in takes else "hidden_states"
    side = 2 * (_first(vision, "spatial_merge_size", "merge_size") or 2)
    patch, times = _patch(vision), _first(vision, "temporal_patch_size") or 1
    table = {grid: torch.tensor([[1, side, side]], device="cpu")}
    table |= {n: torch.tensor([side // 2], device="cpu") for n in ("image_merge_sizes", "merge_sizes") if n in takes}
    flat = channels * patch**2
    shapes = [*((side**2, flat * n) for n in (times, 1, 2)), (side**2, channels, patch, patch)]
    for shape in dict.fromkeys([*shapes, (1, *shapes[-1])]):
        yield {name: _white(*shape)} | table


def _padded(vision: Any, channels: int) -> Inputs:
    import torch

    side = 4
    return {
        "pixel_values": _white(1, side**2, channels * _patch(vision) ** 2),
        "pixel_attention_mask": torch.ones(1, side**2, dtype=torch.long, device="cpu"),
        "spatial_shapes": torch.tensor([[side, side]], device="cpu"),
    }


def _placed(name: str, vision: Any, channels: int) -> Iterator[Inputs]:
    """Patches, each with its column and its row: enough of them to be pooled by two, three, or four."""
    import torch

    side = 12
    rows, columns = torch.meshgrid(*[torch.arange(side, device="cpu")] * 2, indexing="ij")
    places = torch.stack([columns.flatten(), rows.flatten()], dim=-1)
    pool = _first(vision, "pooling_kernel_size", "model_patch_size") or 1
    for patch in dict.fromkeys((_patch(vision), _patch(vision) * pool, pool)):
        yield {"pixel_values": _white(1, side**2, channels * patch**2), name: places[None]}


def _packed(vision: Any, channels: int) -> Inputs:
    """Patches side by side in one strip."""
    import torch

    side, patch = 8, _patch(vision)
    strip = _white(1, channels, patch, patch * side**2)
    return {"pixel_values": strip, "target_sizes": torch.tensor([[side, side]], dtype=torch.int32, device="cpu")}


def _grids_of_pixels(takes: set[str], config: Any, channels: int, size: tuple[int, int]) -> Iterator[Inputs]:
    import torch

    vision = _vision(config)
    if "aspect_ratio_ids" in takes:
        most = _first(vision, "max_num_tiles") or 1
        whole = torch.ones(1, 1, dtype=torch.long, device="cpu")
        tiles = torch.ones(1, 1, most, dtype=torch.long, device="cpu")
        yield {"pixel_values": _white(1, 1, most, channels, *size), "aspect_ratio_ids": whole,
               "aspect_ratio_mask": tiles}  # fmt: skip
    side = _patch(vision)
    whole = [size, *_sizes_inside(config), *((n * side, n * side) for n in (8, 24, 4) if n * side <= _LARGEST)]
    for one in whole:
        yield {"pixel_values": _white(1, channels, *one)}
    for one in whole[:2]:
        for tiles in dict.fromkeys((*_TILES, _first(vision, "num_frames") or 1)):
            yield {"pixel_values": _white(1, tiles, channels, *one)}
    yield {"pixel_values": _white(1, 64, channels * side**2)}
    yield {"pixel_values": _white(64, channels * side**2)}


def _beside(takes: set[str], config: Any, pixels: Any) -> Inputs:
    import torch

    height, width = pixels.shape[-2:]
    found: Inputs = {}
    if "image_sizes" in takes and pixels.ndim > 3:
        found["image_sizes"] = torch.tensor([[height, width]], device="cpu")
        if "image_attention_mask" in takes and pixels.ndim == 5:  # by patches: where no sizes are taken, it is by words
            side = _patch(_vision(config))
            mask = torch.ones(*pixels.shape[:2], height // side, width // side, dtype=torch.long, device="cpu")
            found["image_attention_mask"] = mask
    if "high_res_pixel_values" in takes:
        inner = next((c for n in vars(config) if n.startswith("high_res") and (c := getattr(config, n))), None)
        found["high_res_pixel_values"] = _white(1, pixels.shape[1], *_size(inner or config))
    return found


def _vision(config: Any) -> Any:
    """The part of a config that is about images, or all of it."""
    inner = [n for n in getattr(config, "sub_configs", None) or {} if "vision" in n or n in ("vit_config", "visual")]
    return next((c for n in sorted(inner, key=len) if (c := getattr(config, n, None)) is not None), config)


def _size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or _SIZE
    if isinstance(size, dict):
        size = list(size.values())
    height, width = (size, size) if isinstance(size, int) else (tuple(size) * 2)[:2]
    return int(height), int(width)


def _sizes_inside(config: Any) -> list[tuple[int, int]]:
    """Those that configs inside this one name, each once."""
    inner = [c for n in getattr(config, "sub_configs", None) or {} if (c := getattr(config, n, None)) is not None]
    found = [size for c in inner for size in (_size(c), *_sizes_inside(c)) if getattr(c, "image_size", None)]
    return [size for size in dict.fromkeys(found) if size != _size(_vision(config))]


def _patch(vision: Any) -> int:
    backbone = getattr(vision, "backbone_config", None)
    return _first(vision, "patch_size") or (_first(backbone, "patch_size") if backbone else None) or 14


def _first(config: Any, *names: str) -> int | None:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, list | tuple) and value:
            value = value[-1]
        if type(value) is int:
            return value
    return None


def _white(*shape: int) -> Any:
    import torch

    return torch.ones(*shape, device="cpu")


#: main inputs that are sounds: as spectra, and as samples
SOUNDS = ("input_features", "input_values")
#: modality -> what its main input is called; some models put a word before it
MAIN = {"image": ("pixel_values",), "video": ("pixel_values_videos",), "audio": SOUNDS}


def called(takes: set[str], modality: str) -> dict[str, str]:
    """What inputs are made under -> this forward's own name for it.

    A video is made as an image of several frames is (`image_grid_thw` for `video_grid_thw`); what is said of images is
    no part of it.
    """
    if modality == "video":
        seen = {name for name in takes if "video" in name}
        return {name.replace("values_videos", "values").replace("video_", "image_"): name for name in seen}
    longer = {main: name for main in MAIN[modality] for name in takes if name.endswith(f"_{main}")}
    return longer | {name: name for name in takes}


def renamed(made: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """What was made, under the forward's own names."""
    return {names.get(name, name): value for name, value in made.items()}


_MASKS = ("input_features_mask", "input_values_mask", "feature_attention_mask", "padding_mask", "audio_attention_mask")
_BINS = ("num_mel_bins", "input_feat_per_channel", "num_mel_channels", "feature_size", "n_mels", "input_dim",
         "input_size", "feature_projection_input_dim")  # fmt: skip
_SAMPLES = 16000


def sounds(takes: set[str], config: Any) -> Iterator[dict[str, Any]]:
    """Each way in which one sound can be given to a function that takes these arguments, the likeliest first."""
    for with_masks in (True, False):  # a mask may be of what is made of the sound
        for name in (name for name in SOUNDS if name in takes):
            for sound, frames in _shapes(config, name):
                yield {name: sound} | (masks(takes, frames) if with_masks else {})


def masks(takes: set[str], frames: int) -> dict[str, Any]:
    """The masks of a sound that the model gets whole."""
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
